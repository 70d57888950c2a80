package pebble

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS is the file system below an open store. A write in the store's
// directory that fails makes the store fail, and never returns to the engine:
// what that does next, depending on the file, is to panic with locks held, to
// end the process, or to try again at once and for ever. The goroutine that
// stays behind is the engine's or that of a commit, which nobody waits for once
// the store has failed. Reads go on, as the engine holds no lock that they need
// while it writes.
type guardFS struct {
	vfs.FS
	dir   string      // as PathDir returns it of the files in it
	armed atomic.Bool // while the store is being opened, errors go to who opens it
	fail  func(error)
}

func newGuardFS(fs vfs.FS, dir string, fail func(error)) *guardFS {
	return &guardFS{FS: fs, dir: fs.PathDir(fs.PathJoin(dir, "x")), fail: fail}
}

// check returns err, unless that is of a write that the store depends on.
func (g *guardFS) check(inDir bool, err error) error {
	if err == nil || !inDir || !g.armed.Load() {
		return err
	}
	g.fail(err)
	select {}
}

func (g *guardFS) holds(name string) bool { return g.PathDir(name) == g.dir }

func (g *guardFS) file(f vfs.File, inDir bool, err error) (vfs.File, error) {
	if err := g.check(inDir, err); err != nil {
		return nil, err
	}
	return &guardFile{f, g, inDir}, nil
}

func (g *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.Create(name, category)
	return g.file(f, g.holds(name), err)
}

func (g *guardFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(oldname, newname, category)
	return g.file(f, g.holds(newname), err)
}

func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	return g.file(f, g.holds(g.PathJoin(name, "x")), err)
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

type guardFile struct {
	vfs.File
	g     *guardFS
	inDir bool
}

func (f *guardFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.g.check(f.inDir, err)
}

func (f *guardFile) Preallocate(offset, length int64) error {
	return f.g.check(f.inDir, f.File.Preallocate(offset, length))
}

func (f *guardFile) Sync() error { return f.g.check(f.inDir, f.File.Sync()) }

func (f *guardFile) SyncData() error { return f.g.check(f.inDir, f.File.SyncData()) }

func (f *guardFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.g.check(f.inDir, err)
}

func (f *guardFile) Close() error { return f.g.check(f.inDir, f.File.Close()) }
