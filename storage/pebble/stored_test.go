package pebble_test

import (
	"archive/zip"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

// storedSample is an archive that the code of commit c7bc028 wrote. The folder data is a store, filled
// by storagetest.WriteSample. The file answers.jsonl has the old code's answers to DescribeSample,
// ExtendSample, and a second DescribeSample.
const storedSample = "testdata/format1.zip"

func TestStoredDataOpensUnchanged(t *testing.T) {
	folder, answers := unzipSample(t)
	store, err := pebble.Open("data", pebble.Options{FS: folder})
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, store, answers)
}

// This test writes a new store with the current code. If only TestStoredDataOpensUnchanged fails,
// the current code reads the stored directory incorrectly.
func TestSampleGivesStoredAnswers(t *testing.T) {
	_, answers := unzipSample(t)
	store := openMem(t)
	if _, err := storagetest.WriteSample(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	checkSample(t, store, answers)
}

func checkSample(t *testing.T, store leaderboard.Store, want []string) {
	t.Helper()
	storagetest.CheckSample(t, store, want)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

func unzipSample(t *testing.T) (vfs.FS, []string) {
	t.Helper()
	archive, err := zip.OpenReader(storedSample)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	var answers []string
	for _, f := range archive.File {
		content, err := fs.ReadFile(archive, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name == "answers.jsonl" {
			answers = strings.Split(strings.TrimSpace(string(content)), "\n")
			continue
		}
		file, err := mem.Create(f.Name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return mem, answers
}
