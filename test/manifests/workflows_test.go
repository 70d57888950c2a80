package manifests

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

const workflows = "../../.github/workflows"

func TestWorkflowsAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(workflows, "*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %v, error %v, want at least 2", files, err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	problems, err := linter.LintFiles(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// A tag of an action can move to other code; a commit cannot. The tag stands beside it, for
// people and for tools that update both.
func TestActionsArePinnedByCommit(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(workflows, "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the workflows are %v, error %v", files, err)
	}
	uses := regexp.MustCompile(`uses:\s*(\S.*)`)
	pinned := regexp.MustCompile(`^(\./\S+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	commits := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s, want a commit with its tag in a comment", file, m[1])
			}
			name, commit, _ := strings.Cut(m[1], "@")
			if other, ok := commits[name]; ok && other != commit {
				t.Errorf("%s uses %s at %s, and another workflow at %s", file, name, commit, other)
			}
			commits[name] = commit
		}
	}
}

// A job that may write runs no code that the repository or its dependencies can change.
func TestOnlyThePublishingJobMayWrite(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(workflows, "*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	mayWrite := func(p *actionlint.Permissions) bool {
		if p == nil {
			return false
		}
		for _, scope := range p.Scopes {
			if scope.Value.Value == "write" {
				return true
			}
		}
		return p.All != nil && p.All.Value != "read-all" && p.All.Value != "none"
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w, errs := actionlint.Parse(text)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if w.Permissions == nil || mayWrite(w.Permissions) {
			t.Errorf("%s gives all jobs permissions to write, want contents: read", file)
		}
		for name, job := range w.Jobs {
			if !mayWrite(job.Permissions) {
				continue
			}
			if filepath.Base(file) != "release.yml" || name != "release" {
				t.Errorf("the job %s of %s may write, want only the job release of release.yml to do so", name, file)
			}
			for _, s := range job.Steps {
				switch e := s.Exec.(type) {
				case *actionlint.ExecAction:
					for _, builder := range []string{"actions/checkout@", "actions/setup-go@", "docker/build-push-action@", "anchore/", "./"} {
						if strings.HasPrefix(e.Uses.Value, builder) {
							t.Errorf("the job %s may write, and uses %s", name, e.Uses.Value)
						}
					}
				case *actionlint.ExecRun:
					if regexp.MustCompile(`(^|[\s;&|])(\./|go |make |bash |sh )`).MatchString(e.Run.Value) {
						t.Errorf("the job %s may write, and runs %s", name, e.Run.Value)
					}
				}
			}
		}
	}
}

func release(t *testing.T) *actionlint.Workflow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(workflows, "release.yml"))
	if err != nil {
		t.Fatal(err)
	}
	w, errs := actionlint.Parse(text)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, name := range []string{"build", "release"} {
		if w.Jobs[name] == nil {
			t.Fatalf("release.yml has no job %s", name)
		}
	}
	return w
}

// script returns the number and the script of the first step whose script contains text.
func script(t *testing.T, steps []*actionlint.Step, text string) (int, *actionlint.ExecRun) {
	t.Helper()
	for i, s := range steps {
		if run, ok := s.Exec.(*actionlint.ExecRun); ok && strings.Contains(run.Run.Value, text) {
			return i, run
		}
	}
	t.Fatalf("release.yml has no step that runs %s", text)
	return 0, nil
}

// Only GitHub can run most of the steps, so the test checks their text.
func TestReleaseWorkflow(t *testing.T) {
	w := release(t)
	steps, publishing := w.Jobs["build"].Steps, w.Jobs["release"].Steps
	event, ok := w.On[0].(*actionlint.WebhookEvent)
	if !ok || len(w.On) != 1 || event.Hook.Value != "push" || event.Branches != nil || len(event.Tags.Values) != 1 || event.Tags.Values[0].Value != "v[0-9]+.[0-9]+.[0-9]+*" {
		t.Error("the workflow lacks the event \"push of a version tag\" or has another event, want only this event")
	}
	if needs := w.Jobs["build"].Needs; len(needs) != 1 || w.Jobs[needs[0].Value].WorkflowCall == nil || w.Jobs[needs[0].Value].WorkflowCall.Uses.Value != "./.github/workflows/check.yml" {
		t.Error("the job build does not depend on check.yml, want check.yml to pass first")
	}
	if needs := w.Jobs["release"].Needs; len(needs) != 1 || needs[0].Value != "build" {
		t.Error("the job release does not depend on the job build alone")
	}
	build, _ := script(t, steps, `./scripts/release.sh "$GITHUB_REF_NAME"`)
	sboms, _ := script(t, steps, "SHA256SUMS")
	action := func(steps []*actionlint.Step, name string) int {
		return slices.IndexFunc(steps, func(s *actionlint.Step) bool {
			a, ok := s.Exec.(*actionlint.ExecAction)
			return ok && strings.HasPrefix(a.Uses.Value, name+"@")
		})
	}
	image, upload := action(steps, "docker/build-push-action"), action(steps, "actions/upload-artifact")
	if !(build < sboms && sboms < image && image < upload) {
		t.Fatalf("step %d makes the archives, step %d the SBOMs, step %d the image, and step %d uploads them; want increasing numbers", build, sboms, image, upload)
	}
	publish, run := script(t, publishing, "gh release create")
	if download := action(publishing, "actions/download-artifact"); download < 0 || download > publish {
		t.Fatalf("step %d downloads the files, step %d publishes them; want increasing numbers", download, publish)
	}
	if !strings.Contains(run.Run.Value, "skopeo copy --all --preserve-digests") {
		t.Errorf("the image is published with %s, want it copied as it was built", run.Run.Value)
	}
	inputs := steps[image].Exec.(*actionlint.ExecAction).Inputs
	for name, want := range map[string]string{
		"platforms": "linux/amd64,linux/arm64", "outputs": "type=oci,dest=${{ github.workspace }}/image.tar",
		"build-args": "VERSION=${{ github.ref_name }}", "sbom": "true", "provenance": "mode=max",
	} {
		input := inputs[name]
		if input == nil {
			t.Errorf("the image is built without %s, want %q", name, want)
		} else if input.Value.Value != want {
			t.Errorf("the image is built with %s %q, want %q", name, input.Value.Value, want)
		}
	}
	if !strings.Contains(run.Run.Value, "dist/*.tar.gz dist/*.cdx.json dist/SHA256SUMS") || !strings.Contains(run.Run.Value, "--notes-file dist/notes.md") {
		t.Errorf("the release is created with %s, want the archives, SBOMs, checksums and notes", run.Run.Value)
	}
}

// A fake Syft writes the SBOMs. SHA256SUMS must have the archives and their SBOMs.
func TestReleaseSumsTheSBOMs(t *testing.T) {
	_, run := script(t, release(t).Jobs["build"].Steps, "SHA256SUMS")
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // the file syft is a program
			t.Fatal(err)
		}
	}
	write("a.tar.gz", "a")
	write("b.tar.gz", "b")
	// The workflow calls: syft scan file:a.tar.gz -o cyclonedx-json=a.cdx.json
	write("syft", "#!/bin/sh\n[ \"$1 $3\" = 'scan -o' ] && echo \"$2\" > \"${4#cyclonedx-json=}\"\n")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", "sha256sum -- *.tar.gz > SHA256SUMS\n"+run.Run.Value+"\nsha256sum --check SHA256SUMS")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SYFT=./syft")
	out, err := cmd.CombinedOutput()
	if want := "a.tar.gz: OK\nb.tar.gz: OK\na.cdx.json: OK\nb.cdx.json: OK\n"; err != nil || string(out) != want {
		t.Errorf("the step and sha256sum --check: error %v, output\n%swant\n%s", err, out, want)
	}
	if run.WorkingDirectory == nil || run.WorkingDirectory.Value != "dist" {
		t.Error("the step does not run in the folder dist, which has the archives")
	}
}
