package cluster

import (
	"os"
	"path/filepath"
	"sync"
)

const runPrefix = "leaderboard-cluster-"

// run is the one folder under which this process keeps its servers' data and
// logs. It lives while a cluster does.
var run struct {
	mu    sync.Mutex
	path  string
	lock  *os.File
	users int
}

// newDir makes a folder for one cluster in the run folder.
func newDir(kind string) (string, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.users == 0 {
		sweep()
		path, lock, err := newRunDir()
		if err != nil {
			return "", err
		}
		run.path, run.lock = path, lock
	}
	dir, err := os.MkdirTemp(run.path, kind+"-")
	if err == nil {
		run.users++
	}
	return dir, err
}

// removeDir removes a folder of newDir, and the run folder after the last.
func removeDir(dir string) error {
	run.mu.Lock()
	defer run.mu.Unlock()
	err := os.RemoveAll(dir)
	if run.users--; run.users == 0 {
		err = os.RemoveAll(run.path)
		run.lock.Close()
	}
	return err
}

func newRunDir() (string, *os.File, error) {
	path, err := os.MkdirTemp("", runPrefix)
	if err != nil {
		return "", nil, err
	}
	// Locked before it gets the name that sweep looks for, so that a sweep in
	// another process never sees it unlocked.
	lock, err := lockFile(filepath.Join(path, "lock.new"))
	if err != nil {
		return "", nil, err
	}
	if err := os.Rename(lock.Name(), filepath.Join(path, "lock")); err != nil {
		lock.Close()
		return "", nil, err
	}
	return path, lock, nil
}

// sweep removes the folders of processes that died without removing them.
func sweep() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*", "lock"))
	for _, path := range locks {
		if lock, err := lockFile(path); err == nil {
			os.RemoveAll(filepath.Dir(path))
			lock.Close()
		}
	}
}
