package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

type exportServer struct {
	*deployment.Node
	t     *testing.T
	store leaderboard.Store
	index leaderboard.Index
}

func startExportServer(t *testing.T) *exportServer {
	t.Helper()
	d := deployment.New(t, deployment.Options{Fresh: true})
	s := &exportServer{t: t, Node: d.Serve(t, "--roles=api", "--kafka-apply-wait=1m", "--request-timeout=2m", "--sweep-interval=2s")}
	d.Serve(t, "--roles=consumer", "--sweep-interval=2s")
	store, err := cql.Open(t.Context(), cql.Options{Hosts: d.Cassandra, DataCenter: d.DataCenter, Keyspace: d.Keyspace, Buckets: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	index, err := redis.Open(t.Context(), redis.Options{Redis: &goredis.UniversalOptions{Addrs: d.Redis}, Prefix: d.RedisPrefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = index.Close() })
	s.store, s.index = engine.New(store), index
	return s
}

func (s *exportServer) run(args ...string) string {
	s.t.Helper()
	cmd := s.Command(s.t, append(args, "--timeout", "2m")...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("leaderboard %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func (s *exportServer) read(path string, answer any) (status int) {
	s.t.Helper()
	status, err := s.Call(s.t.Context(), http.MethodGet, path, nil, answer)
	if err != nil {
		s.t.Fatal(err)
	}
	return status
}

// seal runs a second service on the server's store and index. The parameter now is its present time.
// So the second service seals seasons that are still open for the server.
func (s *exportServer) seal(now time.Time) {
	s.t.Helper()
	service := ranking.New(s.store, s.index, ranking.Options{Now: func() time.Time { return now }})
	defer service.Close()
	for range 2 { // the first pass opens windows, and the second pass fills them
		ctx := s.t.Context()
		if err := errors.Join(service.FillLinked(ctx), service.FillDivisions(ctx), service.Sweep(ctx)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *exportServer) waitFilled() {
	s.t.Helper()
	for _, board := range exportBoards {
		waitFilled(s.t, s.Client, board)
	}
}

type exportSeason struct {
	ID, Status, End, Checksum string
	EndedAt                   string `json:"ended_at"`
	Entrants                  *int
	Amendments                []any
}

func (s *exportServer) seasons(board string) []exportSeason {
	s.t.Helper()
	var list struct {
		Data struct{ Seasons []exportSeason }
	}
	if status := s.read("/v1/boards/"+board+"/seasons?limit=1000", &list); status != http.StatusOK {
		s.t.Fatalf("seasons of %s: status %d", board, status)
	}
	return list.Data.Seasons
}

func (s *exportServer) checksum(board, season string) string {
	s.t.Helper()
	var one struct{ Data exportSeason }
	if status := s.read("/v1/boards/"+board+"/seasons/"+season+"?checksum=true", &one); status != http.StatusOK || one.Data.Checksum == "" {
		s.t.Fatalf("checksum of %s, season %s: status %d, %+v", board, season, status, one)
	}
	return one.Data.Checksum
}

// content returns the rules, seasons, checksums and ladders of a board.
func (s *exportServer) content(board string) (text map[string]string, sealed int) {
	s.t.Helper()
	var rules map[string]any
	s.read("/v1/boards/"+board, &rules)
	delete(rules, "created_at")
	text = map[string]string{"rules": show(rules)}
	for _, season := range s.seasons(board) {
		text[season.ID] = fmt.Sprint(season.End, season.Status, season.EndedAt, show(season.Entrants))
		if season.Status == "sealed" {
			text[season.ID+" checksum"] = s.checksum(board, season.ID)
			sealed++
		}
		for _, division := range []string{"", "gender:F", "gender:M", "age:30", "gender+age:F+30", "gender+age:M+40", "club:c1", "team:t1"} {
			for _, method := range []string{"dense", "ordinal"} {
				query := url.Values{"season": {season.ID}, "limit": {"1000"}, "method": {method}}
				if division != "" {
					query.Set("division", division)
				}
				var page struct {
					Data struct {
						Leaderboard       []any
						Degraded, Filling bool
					}
				}
				switch status := s.read("/v1/boards/"+board+"/scores?"+query.Encode(), &page); {
				case status == http.StatusBadRequest && division != "":
					continue // the board does not have the division
				case status != http.StatusOK || page.Data.Degraded || page.Data.Filling:
					s.t.Fatalf("%s %v: status %d, degraded %t, filling %t", board, query, status, page.Data.Degraded, page.Data.Filling)
				}
				var lines strings.Builder
				for _, entry := range page.Data.Leaderboard {
					fmt.Fprintln(&lines, show(entry))
				}
				text[fmt.Sprint(season.ID, " ", division, " ", method)] = lines.String()
			}
		}
	}
	return text, sealed
}

// laps is the source of the other boards.
var exportBoards = []string{"laps", "best", "ever", "week"}

// A past season closes exportGrace after the creation of its board. The service can seal the season
// a minute after the close, so exportDelay after the creation of the board.
const (
	exportGrace = time.Hour
	exportDelay = exportGrace + time.Minute + 5*time.Second
)

// fill makes each kind of change that an export contains. The oldest result is 215 hours old, so at
// least two weekly seasons have results.
func (s *exportServer) fill(rng *rand.Rand) {
	now := time.Now().UTC().Truncate(time.Second)
	grace := []string{"--grace", exportGrace.String()}
	for _, board := range [][]string{
		{"laps", "--policy", "sum", "--matches", "--tie-breaker", "wins", "--season", "weekly", "--division", "gender", "--division", "age", "--division", "gender+age", "--division", "club"},
		{"best", "--source", "laps", "--match", "mode=ranked", "--season", "daily", "--tie-breaker", "wins", "--division", "gender"},
		{"ever", "--source", "laps", "--policy", "latest"},
		{"week", "--source", "laps", "--policy", "sum", "--season", "rolling", "--days", "3", "--retention", "480h", "--division", "team"},
		{"gone", "--source", "laps", "--match", "track=a"},
	} {
		s.run(append(append([]string{"board", "create"}, board...), grace...)...)
	}
	const every = 5 * time.Hour // the time between two matches
	var rows strings.Builder
	for i := range 220 {
		fmt.Fprintf(&rows, `{"user_id":"u%d","match_id":"m%d","points":%d,"tie_breakers":[%d],"achieved_at":%q,"attributes":{"gender":%q,"age":%q,"club":"c%d","team":"t%d","track":"a","mode":%q}}`+"\n",
			i%12, i/5, rng.IntN(50), rng.IntN(3), now.Add(-time.Duration(i/5)*every-time.Duration(i%5)*time.Second).Format(time.RFC3339),
			[]string{"F", "M"}[rng.IntN(2)], []string{"30", "40"}[rng.IntN(2)], rng.IntN(2), rng.IntN(2), []string{"ranked", "casual"}[i%2])
	}
	file := filepath.Join(s.t.TempDir(), "rows.ndjson")
	if err := os.WriteFile(file, []byte(rows.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.run("import", file, "--board", "laps")
	week, errWeek := leaderboard.Schedule{Kind: leaderboard.Weekly}.At(now)
	last, errLast := leaderboard.Schedule{Kind: leaderboard.Weekly}.At(week.Start.Add(-time.Hour))
	day, errDay := leaderboard.Schedule{Kind: leaderboard.Daily}.At(now.Add(-48 * time.Hour))
	if err := errors.Join(errWeek, errLast, errDay); err != nil {
		s.t.Fatal(err)
	}
	end := week.Start.Add(-10 * time.Hour)
	early := int((now.Sub(end)+6*time.Hour)/every) + 1 // the number of a match of last week, before that season's early end
	s.run("correct", "u0", "m0", "--board", "laps", "--points", "49")
	s.run("correct", "u1", "m0", "--board", "laps", "--attribute", "mode=")
	s.run("retract", "u2", "m0", "--board", "laps")
	for i := range 3 {
		s.run("match", "void", fmt.Sprint("m", early+1+i), "--board", "laps", "--reason", "wrong map")
	}
	s.run("match", "restore", fmt.Sprint("m", early+2), "--board", "laps", "--reason", "it was right")
	for _, ended := range [][]string{{"laps", string(last.ID), end.Format(time.RFC3339)}, {"best", string(day.ID), day.Start.Add(12 * time.Hour).Format(time.RFC3339)}} {
		if out := s.run("season", "end", ended[1], "--board", ended[0], "--at", ended[2], "--reason", "exploit", "--yes"); !strings.Contains(out, "excluded: ") {
			s.t.Fatalf("season end of %v printed %s, want it to exclude results", ended, out)
		}
	}
	s.run("board", "update", "laps", "--division", "gender", "--division", "age", "--division", "gender+age")
	s.run("board", "update", "week", "--division", "gender")
	s.run("board", "delete", "gone", "--yes")
	s.run("ban", "u3", "--board", "laps", "--reason", "aimbot")
	s.run("ban", "u4", "--board", "week")
	s.run("ban", "u5", "--reason", "smurf", "--yes")
	s.run("ban", "u6", "--yes")
	s.run("unban", "u6")
	s.waitFilled()
	s.seal(time.Now().Add(exportDelay))
	s.amend(string(last.ID), early)
}

// amend corrects a result of a sealed season.
func (s *exportServer) amend(season string, match int) {
	s.t.Helper()
	deployment.Eventually(s.t, func(context.Context) error {
		for _, x := range s.seasons("laps") {
			if x.ID == season && x.Status == "sealed" {
				return nil
			}
		}
		return fmt.Errorf("season %s of laps is not sealed: %+v", season, s.seasons("laps"))
	})
	sealed := s.checksum("laps", season)
	user := 5 * match % 12
	for user >= 3 && user <= 5 { // fill banned these users
		user++
	}
	s.run("correct", fmt.Sprint("u", user), fmt.Sprint("m", match), "--board", "laps", "--season", season, "--points", "99", "--reason", "wrong lane")
	deployment.Eventually(s.t, func(context.Context) error {
		if s.checksum("laps", season) == sealed {
			return errors.New("the checksum did not change after a correction in a sealed season")
		}
		return nil
	})
}

// A repeated import changes nothing.
func TestExportsGiveAnEqualDistributedServer(t *testing.T) {
	needs.Slow(t, "pipeline")
	n := seed.New(t)
	source, target := startExportServer(t), startExportServer(t)
	source.fill(rand.New(rand.NewPCG(n, 0)))
	files := map[string]string{}
	for _, board := range exportBoards {
		rules := filepath.Join(t.TempDir(), board+".json")
		if err := os.WriteFile(rules, []byte(source.run("board", "show", board, "--json")), 0o600); err != nil {
			t.Fatal(err)
		}
		target.run("board", "create", "-f", rules)
		files[board] = filepath.Join(t.TempDir(), board+".ndjson")
		source.run("export", "results", "--board", board, "-o", files[board])
	}
	for _, board := range exportBoards {
		for range 2 {
			var c struct{ Rows, Applied, Accepted, Linked, Rejected, Conflict int }
			if err := json.Unmarshal([]byte(target.run("import", files[board], "--board", board, "--json")), &c); err != nil {
				t.Fatal(err)
			}
			if c.Rejected+c.Conflict+c.Accepted > 0 || (c.Linked > 0) != (board != "laps") || board != "laps" && c.Applied == c.Rows {
				t.Errorf("import of %s: %+v; want no row rejected, conflict or accepted; on a linked board, want linked above 0 and applied below rows; on laps, want linked 0", board, c)
			}
		}
	}
	at := time.Now().Add(exportDelay)
	for _, s := range []*exportServer{source, target} {
		s.waitFilled()
		s.seal(at)
		s.waitFilled()
	}
	sealed := 0
	for _, board := range exportBoards {
		want, inBoard := source.content(board)
		got, _ := target.content(board)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: %s (-source +target):\n%s", n, board, diff)
		}
		if least := map[string]int{"laps": 1, "best": 7, "week": 7}[board]; inBoard < least {
			t.Errorf("seed %d: %s has %d sealed seasons, want at least %d", n, board, inBoard, least)
		}
		sealed += inBoard
	}
	if out := target.run("verify"); !strings.Contains(out, " 0 differences") {
		t.Errorf("seed %d: verify of the target printed %s", n, out)
	}
	t.Logf("%d boards, %d sealed seasons", len(exportBoards), sealed)
}
