package pebble

import (
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// guardFS is the file system of an open store. If a write in the store's directory fails, the store
// fails (see Store.fail), and the write never returns. If the engine got the error, it could panic
// with locks held, end the process, or retry forever without delay.
//
// The blocked goroutine belongs to the engine or to Store.commit. No caller waits for this
// goroutine. During a write, the engine holds no lock that reads need, so reads continue.
//
// On a real disk, only the owner may read the files and directories that guardFS creates.
type guardFS struct {
	vfs.FS
	dir   string      // PathDir of each file in the store's directory
	disk  bool        // FS is the machine's file system
	armed atomic.Bool // false during Open, because Open returns the errors of writes
	fail  func(error) // makes the store fail

	syncSeconds prometheus.Histogram
}

func newGuardFS(fs vfs.FS, dir string, fail func(error)) *guardFS {
	return &guardFS{FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), disk: vfs.Root(fs) == vfs.Default, fail: fail, syncSeconds: newSyncSeconds()}
}

// restrict ignores errors, because the permissions of the directory protect its files too.
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

// check returns the error of a write outside the store's directory or during Open. For any other
// error, it makes the store fail and never returns.
func (g *guardFS) check(inDir bool, err error) error {
	if err == nil || !inDir || !g.armed.Load() {
		return err
	}
	g.fail(err)
	select {}
}

func (g *guardFS) holds(name string) bool { return g.PathDir(name) == g.dir }

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
	log   bool // a write-ahead log, whose syncs are measured
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
