package main

import "os"

// ballastBytes is the size of the ballast. With it, the garbage collector runs at most once per 64 MiB of
// new objects. Without it, a server with a small heap collects garbage after every few hundred reads,
// which costs a tenth of their processor time.
const ballastBytes = 64 << 20

// newBallast returns memory that the process keeps and never touches. It counts as heap, so the garbage
// collector lets the heap grow to twice its size. But its pages take no memory. If the operator tunes
// the garbage collector by GOGC, newBallast returns nil.
func newBallast() []byte {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, ballastBytes)
}
