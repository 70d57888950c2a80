package page

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

const sources = "../../web"

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

func TestTypesOfThePages(t *testing.T) {
	needs.Slow(t, "page")
	modules, dir := packages.Node(t, "."), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(sources)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, filepath.Join(modules, ".bin", "tsc"), "--project", ".")
}

// The libraries in web/lib are those of npm.
func TestLibrariesAreUnchanged(t *testing.T) {
	needs.Slow(t, "page")
	modules, lib := packages.Node(t, "."), os.DirFS(filepath.Join(sources, "lib"))
	if err := fs.WalkDir(lib, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		got, err := fs.ReadFile(lib, name)
		if err != nil {
			return err
		}
		if want, err := os.ReadFile(filepath.Join(modules, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("web/lib/%s differs from npm's, %v", name, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// axe finds no violation on any page, in light and dark colors.
func TestPagesAreAccessible(t *testing.T) {
	needs.Slow(t, "page")
	axe, err := os.ReadFile(filepath.Join(packages.Node(t, "."), "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	race := startRace(t)
	call(t.Context(), t, http.MethodPost, race+"/v1/users/bob:ban", `{"reason":"aimbot","until":"2999-01-01T00:00:00Z"}`)
	_, stub := startStub(t)
	dead := startKafka(t, race).front
	for _, theme := range []string{"light", "dark"} {
		b := openBrowser(t, 1200, 900)
		for url, ready := range map[string]string{
			race + "/#board=race": ".podium", race + "/#board=race&user=ada": ".card .figures", race + "/#board=nope": ".problem", race + "/#board=empty": ".empty",
			stub.URL + "/#board=b": ".rows .row[data-user]", stub.URL + "/embed?board=b&theme=" + theme: ".podium", stub.URL + "/embed?board=b&mode=kiosk&theme=" + theme: ".podium",
			stub.URL + "/gallery": "#examples section",
			race + "/admin":       ".unban", race + "/admin#at=players&board=race&user=ada": ".result", race + "/admin#at=matches": "main h1", race + "/admin#at=boards": ".template",
			race + "/admin#at=boards&board=race": ".end", race + "/admin#at=keys": ".grid", race + "/admin#at=audit": ".record", dead + "/admin#at=dead-letters": ".replay", dead + "/admin#at=dead-letters&id=3:17": ".grid", race + "/admin#at=health": ".facts",
		} {
			b.visit(url)
			b.eval(`(localStorage.setItem("leaderboard.theme", "` + theme + `"), document.documentElement.dataset.theme = "` + theme + `")`)
			b.waitForValue(fmt.Sprintf("find(%q) !== null", ready), "true")
			if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](string(axe)+`; ""`)); err != nil {
				t.Fatal(err)
			}
			b.eval(`(globalThis.found = "", axe.run({ resultTypes: ["violations"] }).then(r => { globalThis.found = "done: " + r.violations.map(v => v.id + " " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 150) + " " + n.failureSummary)).join("\n") }), 0)`)
			b.waitFor("axe is done", func() (string, bool) { found := b.eval("globalThis.found"); return found, found != "" })
			if found := b.eval("globalThis.found"); found != "done: " {
				t.Errorf("axe found at %s, %s: %s", url, theme, found)
			}
		}
	}
}
