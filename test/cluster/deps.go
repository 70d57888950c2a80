package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// envCache is the environment variable with the folder in which the jars stay between runs. For the
// default, see cacheDir.
const envCache = "LEADERBOARD_TEST_CACHE"

// copyDependencies is the Maven plugin that fetches the jars. Newer versions may need a newer Maven
// than Debian has. To change the version of a jar, edit pom.xml, run this plugin, and write the
// output of sha256sum *.jar to jars.sha256.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

const installHint = "run scripts/install-test-deps.sh, or on Debian: apt-get install openjdk-17-jre-headless maven redis-server"

//go:embed cassandra kafka
var files embed.FS

func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("cluster: %w: %s", err, installHint)
	}
	return path, nil
}

// findJava returns the path of a Java 17 and the text of java -version. Cassandra 5.0 needs Java 11
// or 17, and Kafka 4 needs 17 or newer.
func findJava(ctx context.Context) (path, version string, err error) {
	var candidates []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = append(candidates, filepath.Join(home, "bin", "java"))
	}
	if path, err := exec.LookPath("java"); err == nil {
		candidates = append(candidates, path)
	}
	installed, _ := filepath.Glob("/usr/lib/jvm/*17*/bin/java")
	for _, java := range append(candidates, installed...) {
		if out, err := runTool(ctx, exec.Command(java, "-version")); err == nil && strings.Contains(out, `version "17.`) {
			return java, out, nil
		}
	}
	return "", "", fmt.Errorf("cluster: no Java 17 in JAVA_HOME, PATH or /usr/lib/jvm: %s", installHint)
}

// jars returns the folder with the jars that kind/jars.sha256 lists. If the folder does not exist,
// Maven fetches them.
func jars(ctx context.Context, kind string, logf func(string, ...any)) (string, error) {
	pins, err := files.ReadFile(kind + "/jars.sha256")
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(pins)
	dir := filepath.Join(cache, kind+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, verifyJars(dir, pins)
	}
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := waitLock(ctx, filepath.Join(cache, kind+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock(lock)
	if _, err := os.Stat(dir); err == nil {
		return dir, verifyJars(dir, pins)
	}
	logf("fetching the jars of %s with Maven into %s (about 60 MB, on the first run only)", kind, dir)
	return dir, fetchJars(ctx, kind, dir, pins)
}

func fetchJars(ctx context.Context, kind, dir string, pins []byte) error {
	mvn, err := find("mvn")
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), kind+".tmp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	pom, err := files.ReadFile(kind + "/pom.xml")
	if err != nil {
		return err
	}
	pomPath, lib := filepath.Join(tmp, "pom.xml"), filepath.Join(tmp, "lib")
	if err := os.WriteFile(pomPath, pom, 0o644); err != nil {
		return err
	}
	_, err = runTool(ctx, exec.Command(mvn, "--batch-mode", "--no-transfer-progress", "--strict-checksums", "--file", pomPath,
		copyDependencies, "-DincludeScope=runtime", "-DoutputDirectory="+lib))
	if err != nil {
		return fmt.Errorf("cluster: fetch the jars of %s: %w; check that Maven reaches Maven Central or a mirror in ~/.m2/settings.xml", kind, err)
	}
	if err := verifyJars(lib, pins); err != nil {
		return err
	}
	return os.Rename(lib, dir)
}

func verifyJars(dir string, pins []byte) error {
	missing := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(pins)); lines.Scan(); {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return fmt.Errorf("cluster: jars.sha256: line %q is not a hash, two spaces and a name", lines.Text())
		}
		missing[name] = sum
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		want, ok := missing[f.Name()]
		delete(missing, f.Name())
		got, err := fileSum(filepath.Join(dir, f.Name()))
		switch {
		case err != nil:
			errs = append(errs, err)
		case !ok:
			errs = append(errs, fmt.Errorf("%s is not pinned", f.Name()))
		case got != want:
			errs = append(errs, fmt.Errorf("%s has sha256 %s, want %s", f.Name(), got, want))
		}
	}
	for name := range missing {
		errs = append(errs, fmt.Errorf("%s is missing", name))
	}
	if len(errs) > 0 {
		return fmt.Errorf("cluster: jars in %s differ from jars.sha256: %w; remove the folder to fetch them again", dir, errors.Join(errs...))
	}
	return nil
}

func fileSum(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// The default is .cache beside the nearest go.mod, or a folder in the user's cache folder.
func cacheDir() (string, error) {
	if dir := os.Getenv(envCache); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	user, err := os.UserCacheDir()
	return filepath.Join(user, "leaderboard"), err
}
