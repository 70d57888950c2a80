// Package backup makes, prunes and restores backups of the embedded store. For this
// package, a store is a folder of files.
package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Folder makes backups of one store in one folder. Its methods are safe for concurrent use.
type Folder struct {
	Path string
	// Copy copies the running store to dir, which must not exist.
	Copy func(ctx context.Context, dir string) error
	// Check returns an error if a copy is damaged.
	Check func(ctx context.Context, dir string) error
	Now   func() time.Time

	mu sync.Mutex
}

// ErrExists means that a backup with the name exists.
var ErrExists = errors.New("backup: a backup with this name exists already")

// partialSuffix ends the name of a backup that is being made or deleted.
const partialSuffix = ".partial"

// Reserved reports whether a name has the form of a scheduled or partial backup.
func Reserved(name string) bool {
	_, err := time.Parse(scheduledLayout, name)
	return err == nil || strings.HasSuffix(name, partialSuffix)
}

// CheckNew returns [ErrExists] if a backup has the name.
func (f *Folder) CheckNew(name string) error {
	if _, err := os.Lstat(filepath.Join(f.Path, name)); err == nil {
		return ErrExists
	}
	return nil
}

// Make makes a backup with a name, which must be a plain file name and not [Reserved]. Only a
// complete backup gets this name. Errors: [ErrExists].
func (f *Folder) Make(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.make(ctx, name, func(context.Context, string) error { return nil })
}

// make calls check before it renames the copy to name. The caller must hold f.mu.
func (f *Folder) make(ctx context.Context, name string, check func(context.Context, string) error) (err error) {
	if err := f.CheckNew(name); err != nil {
		return err
	}
	path := filepath.Join(f.Path, name)
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	dir := path + partialSuffix
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("backup: %w", errors.Join(err, os.RemoveAll(dir)))
		}
	}()
	if err := f.Copy(ctx, dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	if err := check(ctx, dir); err != nil {
		return err
	}
	if err := os.Rename(dir, path); err != nil {
		return err
	}
	return syncFolder(f.Path)
}

const scheduledLayout = "auto-20060102T150405Z"

// Scheduled returns the times of the scheduled backups, oldest first.
func (f *Folder) Scheduled() ([]time.Time, error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("backup: %w", err)
	}
	var times []time.Time
	for _, e := range entries {
		if at, err := time.Parse(scheduledLayout, e.Name()); err == nil && e.IsDir() {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, nil
}

// Outcome reports one scheduled backup.
type Outcome struct {
	Name   string
	Err    error    // if not nil, the backup failed and no backup was deleted
	Pruned []string // the deleted backups
	// PruneErr is the error of deleting old backups. The new backup is complete.
	PruneErr error
}

const retryDelay = 10 * time.Minute

// Run makes a scheduled backup whenever the newest scheduled backup is as old as
// interval, until ctx is done. Run checks each new backup. If the check succeeds, Run
// deletes the oldest scheduled backups until n remain. If the check fails, Run deletes the
// new backup. Run calls report after each attempt. It must not be called more than once.
func (f *Folder) Run(ctx context.Context, interval time.Duration, n int, report func(Outcome)) {
	f.removePartial()
	wait := f.untilNext(interval)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		o := f.runOnce(ctx, n)
		if ctx.Err() != nil {
			return // the server is stopping: do not report a canceled backup
		}
		report(o)
		if wait = interval; o.Err != nil {
			wait = min(interval, retryDelay)
		}
	}
}

func (f *Folder) untilNext(interval time.Duration) time.Duration {
	times, err := f.Scheduled()
	if err != nil || len(times) == 0 {
		return 0
	}
	age := f.Now().Sub(times[len(times)-1])
	return min(max(0, interval-age), interval) // the age is negative if the clock was moved back
}

func (f *Folder) runOnce(ctx context.Context, n int) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := Outcome{Name: f.Now().UTC().Format(scheduledLayout)}
	if o.Err = f.make(ctx, o.Name, f.Check); o.Err == nil {
		o.Pruned, o.PruneErr = f.prune(n, o.Name)
	}
	return o
}

// prune deletes the oldest scheduled backups until n remain. It keeps the backup named
// newest, whose name has an old time if the clock was moved back.
func (f *Folder) prune(n int, newest string) (pruned []string, err error) {
	times, err := f.Scheduled()
	if err != nil {
		return nil, err
	}
	var others []string
	for _, at := range times {
		if name := at.Format(scheduledLayout); name != newest {
			others = append(others, name)
		}
	}
	for _, name := range others[:max(0, len(others)-n+1)] {
		// Rename the backup first: a partly deleted backup must not look complete.
		path := filepath.Join(f.Path, name)
		if err := os.Rename(path, path+partialSuffix); err != nil {
			return pruned, fmt.Errorf("backup: %w", err)
		}
		if err := os.RemoveAll(path + partialSuffix); err != nil {
			return pruned, fmt.Errorf("backup: %w", err)
		}
		pruned = append(pruned, name)
	}
	return pruned, nil
}

func (f *Folder) removePartial() {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, _ := os.ReadDir(f.Path)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), partialSuffix)
		if _, err := time.Parse(scheduledLayout, name); ok && err == nil {
			_ = os.RemoveAll(filepath.Join(f.Path, e.Name()))
		}
	}
}

// syncFolder makes the folder's list of names durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
