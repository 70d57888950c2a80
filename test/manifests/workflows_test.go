package manifests

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

func release(t *testing.T) (*actionlint.Workflow, []*actionlint.Step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(workflows, "release.yml"))
	if err != nil {
		t.Fatal(err)
	}
	w, errs := actionlint.Parse(text)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	job := w.Jobs["release"]
	if job == nil {
		t.Fatal("release.yml has no job release")
	}
	return w, job.Steps
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
	w, steps := release(t)
	event, ok := w.On[0].(*actionlint.WebhookEvent)
	if !ok || len(w.On) != 1 || event.Hook.Value != "push" || event.Branches != nil || len(event.Tags.Values) != 1 || event.Tags.Values[0].Value != "v[0-9]+.[0-9]+.[0-9]+*" {
		t.Error("the workflow lacks the event \"push of a version tag\" or has another event, want only this event")
	}
	if needs := w.Jobs["release"].Needs; len(needs) != 1 || w.Jobs[needs[0].Value].WorkflowCall == nil || w.Jobs[needs[0].Value].WorkflowCall.Uses.Value != "./.github/workflows/check.yml" {
		t.Error("the job release does not depend on check.yml, want check.yml to pass first")
	}
	build, _ := script(t, steps, `./scripts/release.sh "$GITHUB_REF_NAME"`)
	sboms, _ := script(t, steps, "SHA256SUMS")
	publish, run := script(t, steps, "gh release create")
	image := slices.IndexFunc(steps, func(s *actionlint.Step) bool {
		a, ok := s.Exec.(*actionlint.ExecAction)
		return ok && strings.HasPrefix(a.Uses.Value, "docker/build-push-action@")
	})
	if !(build < sboms && sboms < image && image < publish) {
		t.Fatalf("step %d makes the archives, step %d the SBOMs, step %d the image and step %d the release; want increasing numbers", build, sboms, image, publish)
	}
	inputs := steps[image].Exec.(*actionlint.ExecAction).Inputs
	for name, want := range map[string]string{
		"platforms": "linux/amd64,linux/arm64", "tags": "ghcr.io/${{ github.repository }}:${{ github.ref_name }}",
		"build-args": "VERSION=${{ github.ref_name }}", "push": "true", "sbom": "true", "provenance": "mode=max",
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
	_, steps := release(t)
	_, run := script(t, steps, "SHA256SUMS")
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
