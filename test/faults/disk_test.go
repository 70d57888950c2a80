package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

type smallDisk struct{ path string }

// newSmallDisk mounts a file system until t ends. If this process may not mount file systems,
// newSmallDisk skips t. With REQUIRE_INTEGRATION=1, it fails t instead.
func newSmallDisk(t *testing.T, bytes int) *smallDisk {
	t.Helper()
	d := &smallDisk{t.TempDir()}
	if out, err := asRoot("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0777", bytes), "tmpfs", d.path); err != nil {
		if os.Getenv("REQUIRE_INTEGRATION") == "1" {
			t.Fatalf("cannot mount a file system: %v\n%s", err, out)
		}
		t.Skipf("the test mounts a file system, which needs root: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := asRoot("umount", d.path); err != nil {
			t.Errorf("umount %s: %v\n%s", d.path, err, out)
		}
	})
	return d
}

func (d *smallDisk) resize(t *testing.T, bytes int) {
	t.Helper()
	if out, err := asRoot("mount", "-o", fmt.Sprintf("remount,size=%d", bytes), d.path); err != nil {
		t.Fatalf("resize %s: %v\n%s", d.path, err, out)
	}
}

func (d *smallDisk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.path, "ballast"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("write until the disk is full: %v, want %v", err, syscall.ENOSPC)
	}
	must(t, f.Close())
}

func asRoot(args ...string) (string, error) {
	if os.Getuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	return string(out), err
}
