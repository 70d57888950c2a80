package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// # An archive in files
//
// archive.json identifies the folder. boards.parquet, bans.parquet and erasures.parquet are replaced as a whole. Each season
// has a folder BOARD/SEASON with a Parquet file for each table, and season.json, which names the valid files. A run writes
// the files of a season under new names, then replaces season.json, and then removes the other files. So season.json
// always names files of one run.
//
// A file gets its name when it is complete. Until then, its name ends in .part.
const (
	manifestName   = "archive.json"
	seasonName     = "season.json"
	lockName       = "archive.lock"
	parquetSuffix  = ".parquet"
	maxRowsInGroup = 100_000 // of a Parquet file: these are in memory
	readRows       = 1000
)

type manifest struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`
}

type fileInfo struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// seasonFiles is the content of season.json.
type seasonFiles struct {
	seasonRow
	Files map[string]fileInfo `json:"files"` // by table
}

type parquetFolder struct {
	dir    string
	unlock func()
}

// openParquet opens a folder. To write, it takes the lock and, in a new or empty folder, begins an archive. Errors:
// [ErrBusy], [ErrNone].
func openParquet(ctx context.Context, dir string, write bool) (p *parquetFolder, err error) {
	unlock := func() {}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	if write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if unlock, err = lockFile(ctx, filepath.Join(dir, lockName)); err != nil {
			return nil, err
		}
	}
	p = &parquetFolder{dir, unlock}
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	switch {
	case errors.Is(err, fs.ErrNotExist) && write:
		return p, p.begin()
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s has no %s: %w", dir, manifestName, ErrNone)
	case err != nil:
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil || m.Format < 1 {
		return nil, fmt.Errorf("%s is not that of an archive; choose another folder", filepath.Join(dir, manifestName))
	}
	if m.Format != format {
		return nil, fmt.Errorf("the archive in %s has the format %d, but this program writes the format %d; use the version of the program that wrote it, or a later one", dir, m.Format, format)
	}
	if !write {
		return p, nil
	}
	// A run that was killed may have left files.
	paths, _ := fs.Glob(os.DirFS(dir), "*/*") // fails only for a wrong pattern
	for _, path := range paths {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			err = errors.Join(err, removeOthers(path))
		}
	}
	return p, err
}

func (p *parquetFolder) begin() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName && !strings.HasSuffix(e.Name(), ".part") {
			return fmt.Errorf("%s has other files, such as %s; choose an empty or a new folder", p.dir, e.Name())
		}
	}
	return writeJSON(filepath.Join(p.dir, manifestName), manifest{format, time.Now().UTC().Truncate(time.Second)})
}

// lockWait is how long lockFile waits for another process that is about to finish.
const lockWait = time.Second

func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	type result struct {
		unlock func()
		err    error
	}
	locked, abandoned := make(chan result), make(chan struct{})
	go func() {
		unlock, err := lockedfile.MutexAt(path).Lock()
		select {
		case locked <- result{unlock, err}:
		case <-abandoned:
			if err == nil {
				unlock()
			}
		}
	}()
	timeout := time.NewTimer(lockWait)
	defer timeout.Stop()
	select {
	case r := <-locked:
		if r.err != nil {
			return func() {}, r.err
		}
		return r.unlock, nil
	case <-timeout.C:
		err = ErrBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	close(abandoned)
	return func() {}, err
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// writeFile writes a file under a temporary name, and renames it when it is complete.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := cli.CreatePrivate(path + ".part")
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// escapeID returns a name of a folder for an id, on every file system: also on those that ignore case.
func escapeID(id string) string {
	var name strings.Builder
	for _, c := range []byte(id) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			name.WriteByte(c)
		} else {
			fmt.Fprintf(&name, "%%%02X", c)
		}
	}
	if name.Len() <= 200 {
		return name.String()
	}
	sum := sha256.Sum256([]byte(id))
	return name.String()[:100] + "~" + hex.EncodeToString(sum[:16])
}

func (p *parquetFolder) seasonDir(board, season string) string {
	return filepath.Join(p.dir, escapeID(board), escapeID(season))
}

// seasonsOf yields the seasons of a board, or of all boards if board is empty.
func (p *parquetFolder) seasonsOf(board string) iter.Seq2[seasonFiles, error] {
	return func(yield func(seasonFiles, error) bool) {
		folder := "*"
		if board != "" {
			folder = escapeID(board)
		}
		// Glob has no error for this pattern, because the folder of the archive is not a part of it.
		paths, _ := fs.Glob(os.DirFS(p.dir), folder+"/*/"+seasonName)
		for _, path := range paths {
			text, err := os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(path)))
			var s seasonFiles
			if err == nil {
				if err = json.Unmarshal(text, &s); err != nil {
					err = fmt.Errorf("%s is damaged: %w", path, err)
				}
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

func (p *parquetFolder) seasons(context.Context) (list []seasonRow, err error) {
	for s, err := range p.seasonsOf("") {
		if err != nil {
			return nil, err
		}
		list = append(list, s.seasonRow)
	}
	return list, nil
}

// parquetTable writes one file of a season.
type parquetTable[R row] struct {
	file *os.File
	hash hash.Hash
	*parquet.GenericWriter[R]
	info fileInfo
}

func newWriter[R row](w io.Writer) *parquet.GenericWriter[R] {
	return parquet.NewGenericWriter[R](w, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(maxRowsInGroup), parquet.CreatedBy("leaderboard", "", ""))
}

func createTable[R row](dir, name string) (*parquetTable[R], error) {
	file, err := cli.CreatePrivate(filepath.Join(dir, name+".part"))
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	return &parquetTable[R]{file, h, newWriter[R](io.MultiWriter(file, h)), fileInfo{Name: name}}, nil
}

func (t *parquetTable[R]) add(rows []R) error {
	n, err := t.Write(rows)
	t.info.Rows += int64(n)
	return err
}

// complete gives the file its name.
func (t *parquetTable[R]) complete() (fileInfo, error) {
	err := t.Close()
	if err == nil {
		err = t.file.Sync()
	}
	t.info.SHA256 = hex.EncodeToString(t.hash.Sum(nil))
	if err = errors.Join(err, t.file.Close()); err == nil {
		err = os.Rename(t.file.Name(), strings.TrimSuffix(t.file.Name(), ".part"))
	}
	return t.info, err
}

// seasonWriter implements writer.
type seasonWriter struct {
	resultFile   *parquetTable[resultRow]
	userFile     *parquetTable[userRow]
	voidFile     *parquetTable[voidRow]
	standingFile *parquetTable[standingRow]
}

func (w *seasonWriter) results(rows []resultRow) error     { return w.resultFile.add(rows) }
func (w *seasonWriter) profiles(rows []userRow) error      { return w.userFile.add(rows) }
func (w *seasonWriter) voids(rows []voidRow) error         { return w.voidFile.add(rows) }
func (w *seasonWriter) standings(rows []standingRow) error { return w.standingFile.add(rows) }

func (w *seasonWriter) create(dir string) (err error) {
	run := "-" + strings.ToLower(rand.Text()[:10]) + parquetSuffix
	if w.resultFile, err = createTable[resultRow](dir, "results"+run); err != nil {
		return err
	}
	if w.userFile, err = createTable[userRow](dir, "users"+run); err != nil {
		return err
	}
	if w.voidFile, err = createTable[voidRow](dir, "voids"+run); err != nil {
		return err
	}
	w.standingFile, err = createTable[standingRow](dir, "standings"+run)
	return err
}

func (w *seasonWriter) complete() (files map[string]fileInfo, err error) {
	files = map[string]fileInfo{}
	for table, complete := range map[string]func() (fileInfo, error){
		"results": w.resultFile.complete, "users": w.userFile.complete, "voids": w.voidFile.complete, "standings": w.standingFile.complete,
	} {
		info, fileErr := complete()
		files[table], err = info, errors.Join(err, fileErr)
	}
	return files, err
}

// discard closes the files. removeOthers removes them.
func (w *seasonWriter) discard() {
	if w.resultFile != nil {
		_ = w.resultFile.file.Close()
	}
	if w.userFile != nil {
		_ = w.userFile.file.Close()
	}
	if w.voidFile != nil {
		_ = w.voidFile.file.Close()
	}
	if w.standingFile != nil {
		_ = w.standingFile.file.Close()
	}
}

func (p *parquetFolder) putSeason(_ context.Context, key leaderboard.SeasonKey, fill func(writer) (seasonRow, error)) (err error) {
	dir := p.seasonDir(string(key.Board), string(key.Season))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeOthers(dir)) }()
	w := &seasonWriter{}
	if err := w.create(dir); err != nil {
		w.discard()
		return err
	}
	season, err := fill(w)
	if err != nil {
		w.discard()
		return err
	}
	files, err := w.complete()
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, seasonName), seasonFiles{season, files})
}

// removeOthers removes the files that season.json does not name, and the folder if it has no season.json.
func removeOthers(dir string) error {
	keep := []string{seasonName}
	text, err := os.ReadFile(filepath.Join(dir, seasonName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		var s seasonFiles
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		for _, f := range s.Files {
			keep = append(keep, f.Name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if isOurs := strings.HasSuffix(strings.TrimSuffix(e.Name(), ".part"), parquetSuffix) || e.Name() == seasonName+".part"; isOurs && !slices.Contains(keep, e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if len(keep) == 1 {
		_ = os.Remove(dir) // fails if the folder has other files
	}
	return errors.Join(errs...)
}

// rowsOf yields the rows of a file.
func rowsOf[R any](path string) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		file, err := os.Open(path)
		if err != nil {
			yield(none, err)
			return
		}
		defer func() { _ = file.Close() }() // nothing was written
		r, err := guarded(func() (*parquet.GenericReader[R], error) { return parquet.NewGenericReader[R](file), nil })
		if err != nil {
			yield(none, fmt.Errorf("%s is damaged: %w", path, err))
			return
		}
		defer func() { _ = r.Close() }()
		for rows := make([]R, readRows); ; {
			clear(rows)
			n, err := guarded(func() (int, error) { return r.Read(rows) })
			for _, row := range rows[:n] {
				if !yield(row, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(none, fmt.Errorf("%s is damaged: %w", path, err))
				return
			}
		}
	}
}

// guarded calls f, and returns a panic as an error: the library may panic while it reads a damaged file.
func guarded[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be decoded: %v", p)
		}
	}()
	return f()
}

// tableOf yields the rows of a table of a season, if the file is as it was written.
func tableOf[R row](p *parquetFolder, s *seasonFiles, table string) iter.Seq2[R, error] {
	info := s.Files[table]
	path := filepath.Join(p.seasonDir(s.Board, s.Season), info.Name)
	sum, err := hashFile(path)
	if err == nil && sum != info.SHA256 {
		err = fmt.Errorf("%s is damaged: its SHA-256 is not that in %s; restore it from a copy, or remove the folder to archive the season again", path, seasonName)
	}
	if err != nil {
		return func(yield func(R, error) bool) {
			var none R
			yield(none, err)
		}
	}
	return rowsOf[R](path)
}

func hashFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, file.Close())
}

// whole returns the rows of a file of the whole archive, or nil without the file.
func whole[R row](p *parquetFolder, table string) (rows []R, err error) {
	for r, err := range rowsOf[R](filepath.Join(p.dir, table+parquetSuffix)) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// putWhole replaces a file of the whole archive, unless it has these rows.
func putWhole[R row](p *parquetFolder, table string, rows []R) error {
	stored, err := whole[R](p, table)
	if err != nil {
		return err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	after, err := json.Marshal(rows)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return writeFile(filepath.Join(p.dir, table+parquetSuffix), func(f io.Writer) error {
		w := newWriter[R](f)
		if _, err := w.Write(rows); err != nil {
			return err
		}
		return w.Close()
	})
}

func (p *parquetFolder) putBoards(_ context.Context, rows []boardRow) error {
	stored, err := whole[boardRow](p, "boards")
	if err != nil {
		return err
	}
	for _, r := range stored {
		if !slices.ContainsFunc(rows, func(b boardRow) bool { return b.Board == r.Board }) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(x, y boardRow) int { return strings.Compare(x.Board, y.Board) })
	return putWhole(p, "boards", rows)
}

func (p *parquetFolder) putBans(_ context.Context, rows []banRow) error {
	return putWhole(p, "bans", rows)
}

func (p *parquetFolder) erasures(context.Context) ([]erasureRow, error) {
	return whole[erasureRow](p, "erasures")
}

func (p *parquetFolder) erase(ctx context.Context, rows []erasureRow) (int64, error) {
	known, err := whole[erasureRow](p, "erasures")
	if err != nil {
		return 0, err
	}
	hashes := map[string]bool{}
	for _, r := range rows {
		hashes[r.Hash] = true
	}
	gone := map[string]bool{} // users by id
	for s, err := range p.seasonsOf("") {
		if err != nil {
			return 0, err
		}
		if err := p.eraseFrom(ctx, &s, hashes, gone); err != nil {
			return 0, err
		}
	}
	return int64(len(gone)), putWhole(p, "erasures", append(known, rows...))
}

// eraseFrom writes the files of a season again without the users with certain hashes, if it has any of them, and adds them
// to gone.
func (p *parquetFolder) eraseFrom(ctx context.Context, s *seasonFiles, hashes, gone map[string]bool) error {
	last, found := "", false
	type userID struct {
		User string `parquet:"user_id"`
	}
	for r, err := range rowsOf[userID](filepath.Join(p.seasonDir(s.Board, s.Season), s.Files["results"].Name)) {
		if err != nil {
			return err
		}
		if r.User != last && hashes[leaderboard.UserID(r.User).Digest()] {
			gone[r.User], found = true, true
		}
		last = r.User
	}
	if !found || ctx.Err() != nil {
		return ctx.Err()
	}
	key := leaderboard.SeasonKey{Board: leaderboard.BoardID(s.Board), Season: leaderboard.SeasonID(s.Season)}
	return p.putSeason(ctx, key, func(w writer) (seasonRow, error) {
		season := s.seasonRow
		season.Mark, season.Checksum, season.Results, season.Entrants = "", "", 0, 0
		err := errors.Join(
			keep(tableOf[resultRow](p, s, "results"), func(r *resultRow) bool { return !gone[r.User] }, func(rows []resultRow) error {
				season.Results += int64(len(rows))
				return w.results(rows)
			}),
			keep(tableOf[userRow](p, s, "users"), func(r *userRow) bool { return !gone[r.User] }, w.profiles),
			keep(tableOf[voidRow](p, s, "voids"), func(*voidRow) bool { return true }, w.voids),
			keep(tableOf[standingRow](p, s, "standings"), func(r *standingRow) bool { return !gone[r.User] }, func(rows []standingRow) error {
				for i := range rows {
					if rows[i].Division == "" {
						season.Entrants++
					}
				}
				return w.standings(rows)
			}))
		return season, err
	})
}

// keep writes the rows that satisfy a condition.
func keep[R row](rows iter.Seq2[R, error], condition func(*R) bool, write func([]R) error) error {
	var kept []R
	for r, err := range rows {
		if err != nil {
			return err
		}
		if !condition(&r) {
			continue
		}
		kept = append(kept, r)
		if err := flush(&kept, write, batchRows-1); err != nil {
			return err
		}
	}
	return flush(&kept, write, 0)
}

func (p *parquetFolder) boards(context.Context) ([]boardRow, error) {
	return whole[boardRow](p, "boards")
}

func (p *parquetFolder) read(_ context.Context, b *pb.Board, global bool) iter.Seq2[*pb.ExportResultsResponse, error] {
	return func(yield func(*pb.ExportResultsResponse, error) bool) {
		var seasons []seasonFiles
		for s, err := range p.seasonsOf(b.GetBoardId()) {
			if err != nil {
				yield(nil, err)
				return
			}
			seasons = append(seasons, s)
		}
		result := func(r *resultRow) (*pb.ExportResultsResponse, error) { return r.message(client.TakesPoints(b)) }
		_ = eachSeason(seasons, func(s *seasonFiles) bool { return convert(tableOf[resultRow](p, s, "results"), result, yield) }) &&
			p.readProfiles(seasons, yield) &&
			eachSeason(seasons, func(s *seasonFiles) bool {
				return convert(tableOf[voidRow](p, s, "voids"), infallible((*voidRow).message), yield)
			}) &&
			eachSeason(seasons, func(s *seasonFiles) bool { m := s.end(); return m == nil || yield(m, nil) }) &&
			p.readBans(b.GetBoardId(), global, yield)
	}
}

func eachSeason(seasons []seasonFiles, f func(*seasonFiles) bool) bool {
	for i := range seasons {
		if !f(&seasons[i]) {
			return false
		}
	}
	return true
}

// readProfiles yields the newest profile of each user: each season has the one at the time when it was archived.
func (p *parquetFolder) readProfiles(seasons []seasonFiles, yield func(*pb.ExportResultsResponse, error) bool) bool {
	newest := map[string]int64{} // revisions
	if !eachSeason(seasons, func(s *seasonFiles) bool {
		return convert(tableOf[userRow](p, s, "users"), func(r *userRow) (*pb.ExportResultsResponse, error) {
			if r.Revision != nil {
				newest[r.User] = max(newest[r.User], *r.Revision)
			}
			return nil, nil
		}, yield)
	}) {
		return false
	}
	return eachSeason(seasons, func(s *seasonFiles) bool {
		return convert(tableOf[userRow](p, s, "users"), func(r *userRow) (*pb.ExportResultsResponse, error) {
			if r.Revision == nil || *r.Revision != newest[r.User] {
				return nil, nil
			}
			delete(newest, r.User)
			return r.message()
		}, yield)
	})
}

func (p *parquetFolder) readBans(board string, global bool, yield func(*pb.ExportResultsResponse, error) bool) bool {
	rows, err := whole[banRow](p, "bans")
	if err != nil {
		yield(nil, err)
		return false
	}
	for i := range rows {
		if r := &rows[i]; (r.Board == board || r.Board == "" && global) && !yield(r.message(), nil) {
			return false
		}
	}
	return true
}

func (p *parquetFolder) close() error {
	p.unlock()
	return nil
}
