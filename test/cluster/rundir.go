package cluster

import (
	"os"
	"path/filepath"
	"sync"
)

const runPrefix = "leaderboard-cluster-"

// runDir is the run folder, with the data and logs of all clusters of this process. It exists while
// the process has a cluster.
var runDir struct {
	mu    sync.Mutex
	path  string
	lock  *os.File
	users int // the number of clusters that have a folder in the run folder
}

func newDir(kind string) (string, error) {
	runDir.mu.Lock()
	defer runDir.mu.Unlock()
	if runDir.users == 0 {
		removeDeadRunDirs()
		path, lock, err := newRunDir()
		if err != nil {
			return "", err
		}
		runDir.path, runDir.lock = path, lock
	}
	dir, err := os.MkdirTemp(runDir.path, kind+"-")
	if err == nil {
		runDir.users++
	}
	return dir, err
}

// removeDir removes a cluster's folder. After the last cluster, it also removes the run folder.
func removeDir(dir string) error {
	runDir.mu.Lock()
	defer runDir.mu.Unlock()
	err := os.RemoveAll(dir)
	if runDir.users--; runDir.users == 0 {
		err = os.RemoveAll(runDir.path)
		unlock(runDir.lock)
	}
	return err
}

// newRunDir creates and locks a run folder. removeDir or the end of the process unlocks it.
func newRunDir() (path string, lock *os.File, err error) {
	path, err = os.MkdirTemp("", runPrefix)
	if err != nil {
		return "", nil, err
	}
	// The file is locked before it gets the name that removeDeadRunDirs looks for.
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

// removeDeadRunDirs removes the run folders of ended processes. It ignores errors: the next call
// retries.
func removeDeadRunDirs() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*", "lock"))
	for _, path := range locks {
		if lock, err := lockFile(path); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
			unlock(lock)
		}
	}
}
