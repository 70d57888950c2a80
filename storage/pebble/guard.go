package pebble

import (
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// guardFS is the file system that an open store uses. If a write in the store's directory
// fails, guardFS makes the store fail, and the write never returns. If the write returned
// the error, the engine would panic with locks held, end the process, or retry forever
// without delay, depending on the file.
//
// The blocked goroutine belongs to the engine or to a commit. Once the store has failed,
// no caller waits for this goroutine. Reads continue, because during a write
// the engine holds no lock that reads need.
//
// On a real disk, guardFS also creates files and directories that only their owner may
// read. The engine itself would let everybody read them.
type guardFS struct {
	vfs.FS
	dir   string      // the store's directory, in the form that PathDir returns for its files
	disk  bool        // the files are on a real disk, not in memory
	armed atomic.Bool // false during Open, because Open returns the errors of writes
	fail  func(error) // makes the store fail

	syncSeconds prometheus.Histogram
}

func newGuardFS(fs vfs.FS, dir string, fail func(error)) *guardFS {
	return &guardFS{FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), disk: vfs.Root(fs) == vfs.Default, fail: fail, syncSeconds: newSyncSeconds()}
}

// restrict sets the permissions of a new file: only its owner may read and write it. It
// ignores errors, because some file systems have no permissions, and only the owner may
// read the directory anyway.
func (g *guardFS) restrict(name string) {
	if g.disk {
		_ = os.Chmod(name, 0o600)
	}
}

func (g *guardFS) MkdirAll(dir string, _ os.FileMode) error { return g.FS.MkdirAll(dir, 0o700) }

func (g *guardFS) Lock(name string) (io.Closer, error) {
	lock, err := g.FS.Lock(name)
	if err == nil {
		g.restrict(name)
	}
	return lock, err
}

func (g *guardFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.OpenReadWrite(name, category, opts...)
	if err == nil {
		g.restrict(name)
	}
	return f, err
}

// check handles err, the error of a write. inDir reports whether the write was in the store's
// directory. If err is nil, if the write was outside the directory, or if Open still runs,
// check returns err. Otherwise it makes the store fail and never returns.
func (g *guardFS) check(inDir bool, err error) error {
	if err == nil || !inDir || !g.armed.Load() {
		return err
	}
	g.fail(err)
	select {}
}

// holds reports whether a file is in the store's directory.
func (g *guardFS) holds(name string) bool { return g.PathDir(name) == g.dir }

// file wraps a file that was opened for writing, or handles the error of opening it.
func (g *guardFS) file(f vfs.File, name string, inDir bool, err error) (vfs.File, error) {
	if err := g.check(inDir, err); err != nil {
		return nil, err
	}
	return &guardFile{File: f, g: g, inDir: inDir, log: strings.HasSuffix(name, ".log")}, nil
}

func (g *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.Create(name, category)
	if err == nil {
		g.restrict(name)
	}
	return g.file(f, name, g.holds(name), err)
}

func (g *guardFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(oldname, newname, category)
	if err == nil {
		g.restrict(newname) // a file of an older version may be readable by everybody
	}
	return g.file(f, newname, g.holds(newname), err)
}

func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	return g.file(f, name, g.holds(g.PathJoin(name, "x")), err)
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

type guardFile struct {
	vfs.File
	g     *guardFS
	inDir bool
	log   bool // the file is a log, whose syncs are measured
}

func (f *guardFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.g.check(f.inDir, err)
}

func (f *guardFile) Preallocate(offset, length int64) error {
	return f.g.check(f.inDir, f.File.Preallocate(offset, length))
}

func (f *guardFile) Sync() error { return f.g.check(f.inDir, f.timeSync(f.File.Sync)) }

func (f *guardFile) SyncData() error { return f.g.check(f.inDir, f.timeSync(f.File.SyncData)) }

func (f *guardFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.g.check(f.inDir, err)
}

func (f *guardFile) Close() error { return f.g.check(f.inDir, f.File.Close()) }
