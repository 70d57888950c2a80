//go:build !linux && !darwin && !freebsd

package main

func openFileLimit() (limit uint64, ok bool) { return 0, false }

func diskSpace(string) (free, total int64, ok bool) { return 0, 0, false }
