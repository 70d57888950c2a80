package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

type jvm struct {
	java     string
	lib      string   // the folder of jars
	archive  string   // the path of the archive of loaded classes; the file may not exist yet
	quick    []string // flags of Java for CassandraConfig.Quick and KafkaConfig.Quick
	training bool     // write the archive at exit instead of using it
}

const quickJava = "-XX:TieredStopAtLevel=1"

func newJVM(ctx context.Context, kind string, logf func(string, ...any)) (*jvm, error) {
	java, version, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	lib, err := jars(ctx, kind, logf)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(java + version))
	return &jvm{java: java, lib: lib, archive: lib + "-" + hex.EncodeToString(sum[:6]) + ".jsa"}, nil
}

func (j *jvm) command(flags []string, mainAndArgs ...string) *exec.Cmd {
	all := slices.Concat(flags, j.quick)
	if j.training {
		all = append(all, "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-XX:ArchiveClassesAtExit="+j.archive)
	} else if _, err := os.Stat(j.archive); err == nil {
		all = append(all, "-XX:SharedArchiveFile="+j.archive)
	}
	return exec.Command(j.java, append(append(all, "-cp", filepath.Join(j.lib, "*")), mainAndArgs...)...)
}

// If there is no archive of loaded classes, prepare starts a cluster with the function start, and
// stops its first server. At exit, this server writes the archive. Later starts need a third to a half
// less processor time.
func (j *jvm) prepare(ctx context.Context, logf func(string, ...any), start func(context.Context, *jvm) (*Cluster, error)) error {
	if _, err := os.Stat(j.archive); err == nil || j.training {
		return nil
	}
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	lock, err := waitLock(ctx, j.archive+".lock")
	if err != nil {
		return err
	}
	defer unlock(lock)
	if _, err := os.Stat(j.archive); err == nil {
		return nil
	}
	logf("archiving the classes of %s (about 15 s, on the first run only)", filepath.Base(j.lib))
	trainee := *j
	trainee.training, trainee.archive = true, j.archive+".tmp"
	c, err := start(ctx, &trainee)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Servers[0].Stop(ctx), c.Close()); err != nil {
		return err
	}
	if err := os.Rename(trainee.archive, j.archive); err != nil {
		return fmt.Errorf("cluster: archive classes: %w", err)
	}
	return nil
}

func orQuiet(logf func(string, ...any)) func(string, ...any) {
	if logf == nil {
		return func(string, ...any) {}
	}
	return logf
}
