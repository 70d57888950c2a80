package clients

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

const typeScript = "../../sdk/typescript"

// buildTypeScript compiles a copy of the client, and returns its folder.
func buildTypeScript(t *testing.T) (dir string) {
	modules, dir := packages.Node(t, typeScript), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(typeScript)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "npm", "run", "build")
	return dir
}

func TestTypeScript(t *testing.T) {
	needs.Slow(t, "clients")
	dir := buildTypeScript(t)
	t.Setenv("DENO_NO_UPDATE_CHECK", "1")
	for name, program := range map[string][]string{
		"Node": {"node"},
		"Deno": {"node_modules/.bin/deno", "run", "--no-lock", "--no-remote", "--no-npm", "--allow-net=127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			suite(t, start(t, dir, program[0], append(program[1:], "test/driver.js")...), name == "Deno")
		})
	}
}

func TestTypeScriptPackage(t *testing.T) {
	needs.Slow(t, "clients")
	dir := buildTypeScript(t)
	run(t, dir, "node", "--test", "test/client.test.js")
	// The archive has what a program needs, and no more.
	run(t, dir, "npm", "pack", "--ignore-scripts", "--pack-destination", ".")
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(archives) != 1 {
		t.Fatalf("npm pack has made %q", archives)
	}
	files := strings.Fields(strings.ReplaceAll(run(t, dir, "tar", "-tzf", archives[0]), "package/", ""))
	slices.Sort(files)
	want := []string{"README.md", "dist/client.d.ts", "dist/client.js", "dist/types.gen.d.ts", "dist/types.gen.js", "package.json", "src/client.ts", "src/types.gen.ts"}
	if !slices.Equal(files, want) {
		t.Errorf("the archive has %q, want %q", files, want)
	}
	run(t, dir, "npm", "publish", "--ignore-scripts", "--dry-run")
	// The example of the README, in a program that has installed the archive.
	program := t.TempDir()
	run(t, program, "npm", "install", "--offline", "--no-audit", "--no-fund", archives[0])
	write(t, program, "example.mts", "declare const console: { log(...values: unknown[]): void };\n"+example(t, typeScript+"/README.md", "ts", serve(t)))
	run(t, program, filepath.Join(dir, "node_modules", ".bin", "tsc"), "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "example.mts")
	if out := run(t, program, "node", "example.mjs"); out != exampleOutput {
		t.Errorf("the example printed %q, want %q", out, exampleOutput)
	}
}
