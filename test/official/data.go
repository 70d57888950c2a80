package official

import (
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// bundled holds the data sets whose licenses allow redistribution. testdata/README.md names their
// authors.
//
//go:embed testdata/*.csv.gz
var bundled embed.FS

// datasetsVariable is the environment variable that names the folder of the other data sets.
const datasetsVariable = "LEADERBOARD_DATASETS"

type row map[string]string

func (r row) integer(t *testing.T, column string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(r[column], 10, 64)
	if err != nil {
		t.Fatalf("column %q of %v: %v", column, r, err)
	}
	return n
}

func (r row) day(t *testing.T, column string) time.Time {
	t.Helper()
	day, err := time.Parse(time.DateOnly, r[column])
	if err != nil {
		t.Fatalf("column %q of %v: %v", column, r, err)
	}
	return day
}

func readBundled(t *testing.T, name string) []row {
	t.Helper()
	f, err := bundled.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return readTable(t, f)
}

// datasetsRequired reports whether tests without this folder fail, instead of skip.
func datasetsRequired() bool {
	return cmp.Or(os.Getenv("REQUIRE_DATASETS"), os.Getenv("REQUIRE_INTEGRATION")) == "1"
}

func readDataset(t *testing.T, name string) []row {
	t.Helper()
	dir := os.Getenv(datasetsVariable)
	if dir == "" {
		message := fmt.Sprintf("%s is not set: set it to the folder that holds %s", datasetsVariable, name)
		if datasetsRequired() {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return readTable(t, f)
}

func readTable(t *testing.T, r io.ReadCloser) []row {
	t.Helper()
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(unzipped).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]row, 0, len(lines)-1)
	for _, line := range lines[1:] {
		r := make(row, len(line))
		for i, value := range line {
			r[lines[0][i]] = value
		}
		rows = append(rows, r)
	}
	return rows
}
