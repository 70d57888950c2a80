package page

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// timeout bounds each wait for a change of the page.
const timeout = 2 * time.Minute

// browser is a tab of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// openBrowser starts a browser. The test fails if the page throws an exception, or if its content
// security policy blocks a part.
func openBrowser(t *testing.T, width, height int) *browser {
	t.Helper()
	path := findBrowser(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
		chromedp.UserDataDir(t.TempDir()),
	)
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw %+v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.Errorf("the page's content security policy blocked a part: %s", e.Entry.Text)
			}
		}
	}))
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser to end
		cancel()
		cancelAllocator()
	})
	b := &browser{t, ctx}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		return err
	}), chromedp.EmulateViewport(int64(width), int64(height)))
	return b
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	needs.Missing(t, errors.New("no Chromium found; scripts/install-test-deps.sh installs it"))
	return ""
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// visit visits a blank page first, because the browser does not load a page again if only the
// fragment changes.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// queries are the functions find and all of the expressions. They look into the shadow root of the page or of the
// embedded element.
const queries = `const root = document.querySelector("lb-app, leader-board, lb-admin")?.shadowRoot, find = s => root?.querySelector(s) ?? document.querySelector(s),
	all = s => [...(root ?? document).querySelectorAll(s)];`

func (b *browser) eval(expression string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("(() => { "+queries+" return String("+expression+") })()"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func (b *browser) waitForText(selector string, parts ...string) {
	b.t.Helper()
	b.waitFor(fmt.Sprintf("%s contains %q", selector, parts), func() (string, bool) {
		text := strings.Join(strings.Fields(b.eval(fmt.Sprintf("find(%q)?.innerText", selector))), " ")
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return text, false
			}
		}
		return text, true
	})
}

func (b *browser) waitForValue(expression, want string) {
	b.t.Helper()
	b.waitFor(fmt.Sprintf("%s is %q", expression, want), func() (string, bool) {
		got := b.eval(expression)
		return got, got == want
	})
}

func (b *browser) waitFor(condition string, done func() (string, bool)) {
	b.t.Helper()
	var got string
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var ok bool
		if got, ok = done(); ok {
			return
		}
	}
	b.t.Fatalf("timed out after %v: want that %s, got %q at %s", timeout, condition, got, b.eval("location.href"))
}

// choose also sends the event that a user's choice would send.
func (b *browser) choose(id, value string) {
	b.t.Helper()
	b.waitForValue(fmt.Sprintf("[...(find('#%s')?.options ?? [])].some(o => o.value === %q)", id, value), "true")
	b.eval(fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event("change", { bubbles: true })); })(find("#%s"))`, value, id))
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.waitForValue(fmt.Sprintf("find(%q) !== null", selector), "true")
	b.eval(fmt.Sprintf("find(%q).click()", selector))
}

// submit writes text into the input with an id, and submits its form.
func (b *browser) submit(id, text string) {
	b.t.Helper()
	b.waitForValue(fmt.Sprintf("find('#%s') !== null", id), "true")
	b.eval(fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event("input", { bubbles: true })); e.form.requestSubmit(); })(find("#%s"))`, text, id))
}

// fill writes text into the input with an id.
func (b *browser) fill(id, text string) {
	b.t.Helper()
	b.waitForValue(fmt.Sprintf("find('#%s') !== null", id), "true")
	b.eval(fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event("input", { bubbles: true })); })(find("#%s"))`, text, id))
}

// search opens the search, and submits text in its input with an id: user or rank.
func (b *browser) search(id, text string) {
	b.t.Helper()
	b.click(".find")
	b.submit(id, text)
}

// rows waits for the ranks, names, details and scores of the list and the podium, in the order of the ranking.
func (b *browser) rows(want string) {
	b.t.Helper()
	b.waitForValue(`[...all(".podium .step"), ...all(".rows .row[data-user]").sort((x, y) => x.dataset.index - y.dataset.index)].map(e =>
		[".rank", ".name", ".ties", ".score"].map(s => e.querySelector(s)?.innerText).filter(Boolean).join(" ")).join(", ")`, want)
}

// checkFits checks that nothing is wider than the window, and that no rank, score or figure is cut off.
func (b *browser) checkFits() {
	b.t.Helper()
	if got := b.eval("document.documentElement.scrollWidth - innerWidth"); strings.TrimPrefix(got, "-") == got && got != "0" {
		b.t.Errorf("the page at %s is %s pixels wider than the window, want 0", b.eval("location.href"), got)
	}
	if cut := b.eval(`all(".rank, .score, dd, .status, button:not(.chip)").filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && !e.closest("[popover]")).map(e => e.className + " " + e.innerText)`); cut != "" {
		b.t.Errorf("the page at %s cuts off %s, want nothing cut off", b.eval("location.href"), cut)
	}
}
