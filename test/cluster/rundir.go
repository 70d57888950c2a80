package cluster

import (
	"os"
	"path/filepath"
	"sync"
)

const runPrefix = "leaderboard-cluster-"

// run is the folder that holds the data and logs of all clusters of this process.
// It exists while there is a cluster.
var run struct {
	mu    sync.Mutex
	path  string
	lock  *os.File
	users int // clusters that have a folder in it
}

// newDir creates a folder for one cluster in the run folder.
func newDir(kind string) (string, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.users == 0 {
		removeDeadRunDirs()
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

// removeDir removes a folder that newDir created. After the last one it removes
// the run folder too.
func removeDir(dir string) error {
	run.mu.Lock()
	defer run.mu.Unlock()
	err := os.RemoveAll(dir)
	if run.users--; run.users == 0 {
		err = os.RemoveAll(run.path)
		unlock(run.lock)
	}
	return err
}

// newRunDir creates a run folder, and locks it until removeDir unlocks it or the
// process ends.
func newRunDir() (path string, lock *os.File, err error) {
	path, err = os.MkdirTemp("", runPrefix)
	if err != nil {
		return "", nil, err
	}
	// The file is locked before it gets the name that removeDeadRunDirs looks for. So
	// no other process finds it unlocked and removes the folder.
	lock, err = lockFile(filepath.Join(path, "lock.new"))
	if err != nil {
		return "", nil, err
	}
	if err := os.Rename(lock.Name(), filepath.Join(path, "lock")); err != nil {
		unlock(lock)
		return "", nil, err
	}
	return path, lock, nil
}

// removeDeadRunDirs removes the run folders of processes that ended without removing
// them. It ignores errors: the next call, in this or another process, tries again.
func removeDeadRunDirs() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*", "lock"))
	for _, path := range locks {
		if lock, err := lockFile(path); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
			unlock(lock)
		}
	}
}
