package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// onRedis runs f with a client of an imitation of Redis, and of a real server if there is one.
func onRedis(t *testing.T, f func(t *testing.T, addr string, c *redis.Client)) {
	connect := func(t *testing.T, addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Run("imitation", func(t *testing.T) {
		addr := miniredis.RunT(t).Addr()
		f(t, addr, connect(t, addr))
	})
	t.Run("real", func(t *testing.T) {
		addr := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs()[0]
		f(t, addr, connect(t, addr))
	})
}

func zadd(t *testing.T, c *redis.Client, key string, scores map[string]float64) {
	t.Helper()
	var members []redis.Z
	for user, score := range scores {
		members = append(members, redis.Z{Member: user, Score: score})
	}
	if err := c.ZAdd(t.Context(), key, members...).Err(); err != nil {
		t.Fatal(err)
	}
}

func allScores(t *testing.T, s *testServer, board string) map[string]float64 {
	t.Helper()
	scores := map[string]float64{}
	for line := range strings.Lines(s.ok(t, "export", "entries", "--board", board)) {
		e := parseObject(t, line)
		scores[e["user_id"].(string)] = e["score"].(float64)
	}
	return scores
}

func TestImportFromRedis(t *testing.T) {
	runSeed := seed.New(t)
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		rng := rand.New(rand.NewPCG(runSeed, 0))
		s := startInsecure(t)
		s.ok(t, "board", "create", "b", "--policy", "latest")
		scores := map[string]float64{"top": 1 << 53, "bottom": -1 << 53, "a/b?c d%": 7}
		for i := range 2500 {
			scores[fmt.Sprintf("u%d", i)] = float64(rng.IntN(1000))
		}
		const key = "a:b/c d"
		zadd(t, c, key, scores)
		from := "redis://" + addr + "/a:b/c%20d"
		dir := t.TempDir()
		args := []string{"import", "--from", from, "--board", "b", "--json", "--batch", "300", "--rejects", filepath.Join(dir, "r.csv")}
		if got, want := importSummary(t, s.do(t, args...)), (importCounts{Rows: 2503, Applied: 2503}); got != want {
			t.Fatalf("import = %+v, want %+v", got, want)
		}
		if diff := cmp.Diff(scores, allScores(t, s, "b")); diff != "" {
			t.Errorf("scores after the import (-want +got):\n%s", diff)
		}
		changed := map[string]float64{"u1": 5000, "u2": -3, "new": 1}
		zadd(t, c, key, changed)
		for user, score := range changed {
			scores[user] = score
		}
		if got := importSummary(t, s.do(t, args...)); got.Rows != 2504 || got.Rejected+got.Conflict != 0 {
			t.Errorf("the second import = %+v, want 2504 rows, none of them rejected or in conflict", got)
		}
		if diff := cmp.Diff(scores, allScores(t, s, "b")); diff != "" {
			t.Errorf("scores after the second import (-want +got):\n%s", diff)
		}
		checkContains(t, s.ok(t, "result", "u1", "redis:"+key, "--board", "b"), "5000")
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("files after the imports: %v, error %v; want none", files, err)
		}
	})
}

func TestImportFromRedisRejectsMembers(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		s.ok(t, "board", "create", "whole", "--policy", "best")
		s.ok(t, "board", "create", "cents", "--policy", "best", "--unit", "EUR", "--decimals", "2")
		for member, score := range map[string]any{
			"inf": "inf", "-inf": "-inf", "half": "0.5", "cents": "12.25", "beyond": "9007199254740994", "far": "1e300", "ok": "3",
			"a\x00b": 1, "\xff": 2, "\u202eevil": 3, strings.Repeat("x", 200): 4,
		} {
			if err := c.Do(t.Context(), "ZADD", "bad", score, member).Err(); err != nil {
				t.Fatal(err)
			}
		}
		rejects := filepath.Join(t.TempDir(), "r.csv")
		reasons := func(args ...string) map[string]string {
			t.Helper()
			r := s.do(t, append([]string{"import", "--from", "redis://" + addr + "/bad?db=0", "--json", "--rejects", rejects}, args...)...)
			r.mustFail(t, exitFailure, []string{"not applied as given"}, args)
			file, err := os.Open(rejects)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			rows, err := csv.NewReader(file).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(rejects); err != nil {
				t.Fatal(err)
			}
			m := map[string]string{}
			for _, row := range rows[1:] {
				var member []string
				if err := json.Unmarshal([]byte(row[2]), &member); err != nil {
					t.Fatal(err)
				}
				m[member[0]] = row[1]
			}
			return m
		}
		check := func(got, want map[string]string) {
			t.Helper()
			if len(got) != len(want) {
				t.Errorf("%d members are rejected, want %d: %v", len(got), len(want), got)
			}
			for member, reason := range want {
				if !strings.Contains(got[member], reason) {
					t.Errorf("the member %.20q is rejected with the reason %q, want one that contains %q", member, got[member], reason)
				}
			}
		}
		want := map[string]string{
			"inf": "infinite", "-inf": "infinite", "half": "not a whole number", "cents": "not a whole number", "beyond": "beyond 2^53", "far": "beyond 2^53",
			"a\x00b": "user_id", "\ufffd": "not valid UTF-8", "\u202eevil": "user_id", strings.Repeat("x", 200): "200 bytes long",
		}
		check(reasons("--board", "whole"), want)
		delete(want, "half")
		delete(want, "cents")
		check(reasons("--board", "cents", "--score-format", "decimal"), want)
		if diff := cmp.Diff(map[string]float64{"half": 50, "cents": 1225, "ok": 300}, scoresOf(t, s, "cents")); diff != "" {
			t.Errorf("scores in cents (-want +got):\n%s", diff)
		}
	})
}

func TestRedisSourceErrors(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		zadd(t, c, "set", map[string]float64{"ada": 1})
		if err := c.Set(t.Context(), "text", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		tests := []struct {
			url  string
			code int
			want []string
		}{
			{"redis://" + addr + "/none", exitFailure, []string{`database 0 has no key "none"`}},
			{"redis://" + addr + "/set?db=1", exitFailure, []string{`database 1 has no key "set"`}},
			{"redis://" + addr + "/text", exitFailure, []string{`the key "text" is a string, not a sorted set`}},
			{"redis://:secret@" + addr + "/", exitUsage, []string{"names no key"}},
			{"redis:///set", exitUsage, []string{"names no key"}},
			{"redis://:secret@" + addr + "/set?db=x", exitUsage, []string{"invalid database number"}},
			{"redis://:secret@" + addr + "/set?unknown=1", exitUsage, []string{"unexpected option"}},
			{"redis://:secret@[" + addr + "/set", exitUsage, []string{"the Redis URL is invalid"}},
			{"redis://:secret@127.0.0.1:1/set", exitFailure, []string{"the Redis server does not answer"}},
		}
		for _, tt := range tests {
			r := s.do(t, "import", "--from", tt.url)
			r.mustFail(t, tt.code, tt.want, []string{"import", tt.url})
			q := s.do(t, "compare", "--with", tt.url)
			q.mustFail(t, exitFailure, tt.want, []string{"compare", tt.url})
			if strings.Contains(r.stderr+q.stderr, "secret") {
				t.Errorf("an error of %s contains the password: %s%s", tt.url, r.stderr, q.stderr)
			}
		}
		s.fails(t, exitUsage, []string{"unexpected argument"}, "import", "x.csv", "--from", "redis://"+addr+"/set")
		s.fails(t, exitUsage, []string{"--from is empty"}, "import", "--from", "")
		s.fails(t, exitUsage, []string{"does not begin with redis://"}, "import", "--from", "x.csv")
		s.fails(t, exitUsage, []string{"--state, --format and --delimiter are for files"}, "import", "--from", "redis://"+addr+"/set", "--state", "x")
		s.fails(t, exitUsage, []string{"cannot be combined with a Redis URL"}, "import", "--from", "redis://"+addr+"/set", "--system", "podium")
		for args, want := range map[string]string{
			"": "--with is missing", "--with x --limit -1": "--limit -1", "--with x --recheck-after -1s": "--recheck-after -1s", "--with x --format xml": "--format", "--with x --ignore ties": "not one of missing_here",
			"--with redis://" + addr + "/set --format csv": "for files", "--with x --system podium --format csv": "--system determines the format",
		} {
			s.fails(t, exitFailure, []string{want}, append([]string{"compare"}, strings.Fields(args)...)...)
		}

		if err := c.ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
			if strings.Contains(err.Error(), "unknown") {
				return // the imitation has no CONFIG
			}
			t.Fatal(err)
		}
		s.fails(t, exitFailure, []string{"NOAUTH", "LEADERBOARD_SOURCE_PASSWORD"}, "import", "--from", "redis://"+addr+"/set")
		s.fails(t, exitFailure, []string{"WRONGPASS"}, "import", "--from", "redis://:wrong@"+addr+"/set")
		s.ok(t, "import", "--from", "redis://default:secret@"+addr+"/set", "--board", "default")
		environ := []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_SOURCE_PASSWORD=secret"}
		if r := command(t, "", environ, "import", "--from", "redis://"+addr+"/set"); r.code != exitOK {
			t.Errorf("import with the password in the environment: %s, want success", r.stderr)
		}
	})
}

// A node of a Redis Cluster that does not have the key names the node that has it.
func TestRedisSourceInACluster(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetError("MOVED 1234 10.0.0.7:6379")
	s := startInsecure(t)
	s.fails(t, exitFailure, []string{"on another node of the cluster", "10.0.0.7:6379"}, "import", "--from", "redis://"+m.Addr()+"/set")
}

// cutter forwards connections to a server. It closes a connection in place of a request that contains
// "zscan" if cut returns true.
func cutter(t *testing.T, addr string, cut func() bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			go func() {
				defer func() { _, _ = in.Close(), out.Close() }()
				for b := make([]byte, 64<<10); ; {
					n, err := in.Read(b)
					if err != nil || strings.Contains(strings.ToLower(string(b[:n])), "zscan") && cut() {
						return
					}
					if _, err := out.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestImportFromRedisSurvivesTheNetwork(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		scores := map[string]float64{}
		for i := range 6000 {
			scores["u"+strconv.Itoa(i)] = float64(i)
		}
		zadd(t, c, "set", scores)
		var scans atomic.Int64
		third := cutter(t, addr, func() bool { n := scans.Add(1); return n == 1 || n == 3 })
		args := []string{"--board", "default", "--json", "--rejects", filepath.Join(t.TempDir(), "r.csv")}
		if got := importSummary(t, s.do(t, append([]string{"import", "--from", "redis://" + third + "/set"}, args...)...)); got.Rows < 6000 || got.Applied+got.Duplicate != got.Rows {
			t.Errorf("import through a network that failed once = %+v, want at least 6000 rows, all applied or duplicates", got)
		}
		if n := scans.Load(); n <= 3 && strings.HasSuffix(t.Name(), "real") { // the imitation returns all members at once
			t.Errorf("the import made %d scans, want more than 3, because the third one failed", n)
		}
		if diff := cmp.Diff(scores, allScores(t, s, "default")); diff != "" {
			t.Errorf("scores (-want +got):\n%s", diff)
		}
		if strings.HasSuffix(t.Name(), "real") {
			return
		}
		gone := cutter(t, addr, func() bool { return true })
		s.fails(t, exitFailure, []string{"stopped after 0 rows", "does not answer", "run the same command again: it reads the whole set"},
			append([]string{"import", "--from", "redis://" + gone + "/set"}, args...)...)
		s.fails(t, exitFailure, []string{"does not answer"}, "compare", "--with", "redis://"+gone+"/set")
	})
}

// The command trusts the authorities in the file SSL_CERT_FILE, as Go programs do.
func TestImportFromRedisWithTLS(t *testing.T) {
	secrets, err := cluster.NewSecrets(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	addr := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{Secrets: secrets}).Addrs()[0]
	tlsConfig, err := secrets.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: addr, Username: secrets.Username, Password: secrets.Password, TLSConfig: tlsConfig})
	defer c.Close()
	zadd(t, c, "set", map[string]float64{"ada": 3})
	if err := c.ConfigSet(t.Context(), "tls-auth-clients", "no").Err(); err != nil {
		t.Fatal(err)
	}
	s := startInsecure(t)
	load := func(environ ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "import", "--from", "rediss://"+secrets.Username+"@"+addr+"/set", "--json")
		cmd.Env = append(environ, childEnv+"=1", "LEADERBOARD_SERVER="+s.grpc, "LEADERBOARD_SOURCE_PASSWORD="+secrets.Password)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := load(); err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("import without the authority = %v, %s; want an error about the certificate", err, out)
	}
	if out, err := load("SSL_CERT_FILE=" + secrets.CA); err != nil || !strings.Contains(out, `"applied":1`) {
		t.Errorf("import with TLS = %v, %s; want one applied result", err, out)
	}
}

func TestImportOfSystems(t *testing.T) {
	const nakamaHeader = "leaderboard_id,owner_id,username,score,subscore,num_score,max_num_score,metadata,create_time,update_time,expiry_time\n"
	tests := []struct {
		name, system, file, content string
		board, args                 []string
		want                        string
	}{
		{
			name: "Nakama", system: "nakama", file: "record.csv", board: []string{"--policy", "best", "--tie-breaker", "subscore"},
			args: []string{"--filter", "leaderboard_id=weekly", "--metadata", "name=username"},
			content: nakamaHeader +
				`weekly,6e9f4d3c-0001,ada,120,7,3,1000000,"{""car"": ""red""}",2026-11-01 09:00:00+00,2026-11-02 10:00:00.123456+00,1970-01-01 00:00:00+00` + "\n" +
				`weekly,6e9f4d3c-0002,,120,0,1,1000000,{},2026-11-01 09:00:00+00,2026-11-02 15:30:00+05:30,2026-11-09 00:00:00+00` + "\n" +
				`other,6e9f4d3c-0001,ada,5,0,1,1000000,{},2026-11-01 09:00:00+00,2026-11-02 10:00:00+00,1970-01-01 00:00:00+00` + "\n",
			want: `{"user_id":"6e9f4d3c-0001","match_id":"weekly@1970-01-01 00:00:00+00","score":120,"tie_breakers":[7],"revision":1793613600123,"achieved_at":"2026-11-02T10:00:00.123456Z","metadata":{"car":"red","name":"ada"},"season":"all"}
{"user_id":"6e9f4d3c-0002","match_id":"weekly@2026-11-09 00:00:00+00","score":120,"tie_breakers":[0],"revision":1793613600000,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
`,
		},
		{
			name: "PlayFab", system: "playfab", file: "pages.json", board: []string{"--policy", "sum"}, args: []string{"--const", "achieved_at=2026-11-02T10:00:00Z", "--const", "revision=5"},
			content: `{"code":200,"status":"OK","data":{"Leaderboard":[{"PlayFabId":"A1","DisplayName":"ada","StatValue":30,"Position":0},{"PlayFabId":"B2","StatValue":20,"Position":1}],"Version":3}}
{"Leaderboard":[{"PlayFabId":"C3","StatValue":-10,"Position":2}]}`,
			want: `{"user_id":"A1","match_id":"playfab","points":30,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
{"user_id":"B2","match_id":"playfab","points":20,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
{"user_id":"C3","match_id":"playfab","points":-10,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
`,
		},
		{
			name: "PlayFab's newer leaderboards", system: "playfab", file: "new.json", board: []string{"--policy", "best", "--tie-breaker", "wins", "--tie-breaker", "losses"}, args: []string{"--const", "revision=5"},
			content: `{"data":{"Columns":[{"Name":"a"}],"Rankings":[{"Entity":{"Id":"E1","Type":"title_player_account"},"Rank":1,"Scores":["9007199254740992","7","-1"],"LastUpdated":"2026-11-02T10:00:00Z"},
{"Entity":{"Id":"E2"},"Rank":2,"Scores":["1"],"LastUpdated":"2026-11-02T10:00:00Z"}]}}`,
			want: `{"user_id":"E1","match_id":"playfab","score":9007199254740992,"tie_breakers":[7,-1],"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
{"user_id":"E2","match_id":"playfab","score":1,"tie_breakers":[0,0],"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
`,
		},
		{
			name: "Podium", system: "podium", file: "pages.json", board: []string{"--policy", "latest"}, args: []string{"--const", "achieved_at=2026-11-02T10:00:00Z", "--const", "revision=5"},
			content: `{"success":true,"members":[{"publicID":"ada","score":30,"rank":1},{"publicID":"bob","score":20,"rank":2}],"totalPages":2}{"success":true,"members":[{"publicID":"bob","score":20,"rank":2},{"publicID":"eve","score":20,"rank":3}],"totalPages":2}`,
			want: `{"user_id":"ada","match_id":"podium","score":30,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
{"user_id":"bob","match_id":"podium","score":20,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
{"user_id":"eve","match_id":"podium","score":20,"revision":5,"achieved_at":"2026-11-02T10:00:00Z","season":"all"}
`,
		},
	}
	s := startInsecure(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			board := "b" + strconv.Itoa(i)
			s.ok(t, append([]string{"board", "create", board}, tt.board...)...)
			s.ok(t, append([]string{"import", writeFile(t, tt.file, tt.content), "--system", tt.system, "--board", board}, tt.args...)...)
			if diff := cmp.Diff(sortLines(tt.want), sortLines(s.ok(t, "export", "results", "--board", board))); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
	s.ok(t, "board", "create", "bad", "--policy", "best")
	for _, tt := range []struct {
		system, file, content string
		code                  int
		want                  string
	}{
		{"nakama", "x.csv", "owner_id,score\na,1\n", exitUsage, `0 columns named "leaderboard_id"`},
		{"nakama", "x.csv", nakamaHeader + "w,a,,1,5,1,1,{},,2026-11-02 10:00:00+00,1970-01-01 00:00:00+00\n", exitFailure, "1 row was not applied"},
		{"nakama", "x.csv", nakamaHeader + "w,a,,1,0,1,1,{},,yesterday,1970-01-01 00:00:00+00\n", exitFailure, "1 row was not applied"},
		{"podium", "x.json", `{"success":false,"reason":"x"}`, exitFailure, "no array at members"},
		{"podium", "x.json", `{"members":[{"publicID":"a","score":1},`, exitFailure, "ends too early"},
		{"podium", "x.json", `{"members":[{"publicID":"a","score":1e999},{"publicID":"b","score":1.5},{"publicID":"","score":1},{"publicID":{},"score":1},{"score":1}]}`, exitFailure, "5 rows were not applied"},
		{"podium", "x.json", `{"members":[{"publicID":"dup","score":2},{"publicID":"dup","score":1}]}`, exitFailure, "1 row was not applied"},
		{"playfab", "x.json", `{"Rankings":[{"Entity":{"Id":"a"},"Scores":[]},{"Entity":{"Id":"a"},"Scores":["x"]},{"Entity":{"Id":"a"},"Scores":["1","y"]},{"Scores":["1"]}]}`, exitFailure, "4 rows were not applied"},
		{"steam", "x.json", `{}`, exitUsage, "not one of nakama, playfab, podium"},
	} {
		r := s.do(t, "import", writeFile(t, tt.file, tt.content), "--system", tt.system, "--board", "bad")
		r.mustFail(t, tt.code, []string{tt.want}, []string{"import", tt.system, tt.content})
	}
	s.fails(t, exitUsage, []string{"--system determines the format"}, "import", writeFile(t, "x.json", "{}"), "--system", "podium", "--format", "ndjson")
}

type compareReport struct {
	Season      string           `json:"season"`
	UsersHere   int64            `json:"users_here"`
	UsersThere  int64            `json:"users_there"`
	Equal       int64            `json:"equal"`
	Omitted     int64            `json:"omitted"`
	Counts      map[string]int64 `json:"counts"`
	Differences []struct {
		User      string   `json:"user_id"`
		Kind      string   `json:"kind"`
		Here      *float64 `json:"score_here"`
		There     *float64 `json:"score_there"`
		RankHere  int64    `json:"rank_here"`
		RankThere int64    `json:"rank_there"`
		Cause     string   `json:"cause"`
	} `json:"differences"`
}

func compareJSON(t *testing.T, r commandResult) (report compareReport, lines []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("compare printed %q: %v; %s", r.stdout, err, r.stderr)
	}
	number := func(n *float64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatFloat(*n, 'f', -1, 64)
	}
	for _, d := range report.Differences {
		lines = append(lines, fmt.Sprintln(d.Kind, d.User, number(d.Here), number(d.There), d.RankHere, d.RankThere)+"")
		if d.Cause == "" {
			t.Errorf("the difference of %s has no cause", d.User)
		}
	}
	return report, lines
}

func TestCompareWithRedis(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		s.ok(t, "board", "create", "b", "--policy", "best")
		for _, r := range [][2]string{{"ada", "9"}, {"tie-a", "5"}, {"tie-b", "5"}, {"tie-c", "5"}, {"here", "4"}, {"more", "3"}, {"less", "2"}, {"last", "1"}} {
			s.ok(t, "submit", r[0], "--board", "b", "--score", r[1], "--match", "m")
		}
		zadd(t, c, "set", map[string]float64{"ada": 9, "tie-a": 5, "tie-b": 5, "tie-c": 5, "there": 4, "more": 1, "less": 8, "last": 1})
		zadd(t, c, "set", map[string]float64{"\xff": 1, "half": 0.5})
		with := "redis://" + addr + "/set"
		r := s.do(t, "compare", "-b", "b", "--with", with, "--recheck-after", "0s", "-o", "json")
		r.mustFail(t, 2, []string{"the board differs from the other system: 8 differences"}, []string{"compare"})
		got, lines := compareJSON(t, r)
		// tie-b has the same place in both orders.
		want := []string{
			"invalid_there half - - 0 0\n", "invalid_there record",
			"score less 2 8 7 2\n", "score more 3 1 6 7\n", "missing_here there - 4 0 6\n", "missing_there here 4 - 5 0\n",
			"tie_rule tie-a 5 5 2 5\n", "tie_rule tie-c 5 5 4 3\n",
		}
		if len(lines) != len(want) {
			t.Errorf("%d differences, want %d: %q", len(lines), len(want), lines)
		}
		all := strings.Join(lines, "")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("no difference is %q; the differences are:\n%s", w, all)
			}
		}
		if got.UsersHere != 8 || got.UsersThere != 10 || got.Equal != 3 || got.Season != "all" || got.Counts["score"] != 2 || got.Counts["tie_rule"] != 2 {
			t.Errorf("the report is %+v, want 8 users here and 10 there, 3 of them equal", got)
		}

		file := filepath.Join(t.TempDir(), "all.ndjson")
		r = s.do(t, "compare", "-b", "b", "--with", with, "--recheck-after", "0s", "--limit", "2", "--all", file)
		r.mustFail(t, 2, []string{"8 differences"}, []string{"compare"})
		checkContains(t, r.stdout, "board b, season all: 8 users here, 10 in "+with+", 3 equal", "and 6 more differences; --all FILE writes all of them")
		checkContains(t, r.stdout, "2 score, 2 tie_rule, 2 invalid_there")
		r = s.do(t, "compare", "-b", "b", "--with", with, "--recheck-after", "0s", "--ignore", "tie_rule,invalid_there", "--json")
		r.mustFail(t, 2, []string{": 4 differences"}, []string{"compare"})
		if report, lines := compareJSON(t, r); len(lines) != 4 || report.Counts["tie_rule"] != 2 {
			t.Errorf("with two kinds ignored, compare lists %q with the counts %v, want 4 differences, and all kinds counted", lines, report.Counts)
		}
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") != 8 {
			t.Errorf("the file of all differences has the text %q, error %v; want 8 lines", text, err)
		}

		if err := c.Del(t.Context(), "set").Err(); err != nil {
			t.Fatal(err)
		}
		zadd(t, c, "set", scoresOf(t, s, "b"))
		if err := c.ZRem(t.Context(), "set", "tie-a", "tie-c").Err(); err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{"tie-a", "tie-c"} {
			s.ok(t, "retract", user, "m", "--board", "b")
		}
		checkContains(t, s.ok(t, "compare", "-b", "b", "--with", with, "--recheck-after", "0s"), "6 users here, 6 in", "6 equal")
		for _, args := range [][]string{{"-o", "csv"}, {"-o", "yaml"}, {"--jq", ".equal"}} {
			s.ok(t, append([]string{"compare", "-b", "b", "--with", with}, args...)...)
		}
	})
}

// In Redis, equal scores stand in the order of the bytes of the members, from the greatest one if
// higher scores are better.
func TestCompareKnowsTheOrderOfRedis(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		users := []string{"a", "ab", "abc", "b", "ä", "z", "zz"}
		for order, fromBest := range map[string]bool{"higher-first": true, "lower-first": false} {
			s.ok(t, "board", "create", order, "--policy", "best", "--order", order)
			scores := map[string]float64{}
			for _, user := range users {
				scores[user] = 5
			}
			zadd(t, c, order, scores)
			sorted, err := c.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: order, Start: 0, Stop: -1, Rev: fromBest}).Result()
			if err != nil {
				t.Fatal(err)
			}
			for i, user := range sorted { // the first one reaches the score first
				s.ok(t, "submit", user, "--board", order, "--score", "5", "--match", "m", "--achieved-at", fmt.Sprintf("2026-11-20T10:00:%02dZ", i))
			}
			checkContains(t, s.ok(t, "compare", "-b", order, "--with", "redis://"+addr+"/"+order), "7 equal")
		}
	})
}

// lateServer submits a result when users are read again.
type lateServer struct {
	pb.UnimplementedLeaderboardServiceServer
	scores pb.LeaderboardServiceClient
	late   func()
}

func (l *lateServer) GetBoard(ctx context.Context, r *pb.GetBoardRequest) (*pb.GetBoardResponse, error) {
	return l.scores.GetBoard(ctx, r)
}

func (l *lateServer) ListScores(ctx context.Context, r *pb.ListScoresRequest) (*pb.ListScoresResponse, error) {
	return l.scores.ListScores(ctx, r)
}

func (l *lateServer) LookupScores(ctx context.Context, r *pb.LookupScoresRequest) (*pb.LookupScoresResponse, error) {
	l.late()
	return l.scores.LookupScores(ctx, r)
}

func TestCompareReadsDifferencesAgain(t *testing.T) {
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		s.ok(t, "submit", "slow", "--points", "1", "--match", "m1")
		zadd(t, c, "set", map[string]float64{"slow": 3, "new": 7, "gone": 4})
		p := serve(t, &lateServer{scores: dial(t, s), late: func() {
			s.ok(t, "submit", "slow", "--points", "2", "--match", "m2")
			s.ok(t, "submit", "new", "--points", "7", "--match", "m1")
			if err := c.ZRem(context.WithoutCancel(t.Context()), "set", "gone").Err(); err != nil {
				t.Error(err)
			}
		}})
		report, lines := compareJSON(t, p.do(t, "compare", "--with", "redis://"+addr+"/set", "--recheck-after", "0s", "--json"))
		want := "late gone - - 0 2\n" + "late new 7 7 0 1\n" + "late slow 3 3 1 3\n"
		if diff := cmp.Diff(want, strings.Join(lines, "")); diff != "" || report.Counts["late"] != 3 {
			t.Errorf("differences (-want +got):\n%s", diff)
		}
	})
}

func TestCompareWithFiles(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "b", "--policy", "best", "--tie-breaker", "wins", "--unit", "EUR", "--decimals", "2")
	for user, args := range map[string][]string{"ada": {"1225", "3"}, "bob": {"1225", "2"}, "eve": {"100", "0"}} {
		s.ok(t, "submit", user, "--board", "b", "--score", args[0], "--tie-breakers", args[1], "--match", "m")
	}
	compare := func(code int, name, content string, args ...string) string {
		t.Helper()
		r := s.do(t, append([]string{"compare", "-b", "b", "--with", writeFile(t, name, content), "--recheck-after", "0s", "--json"}, args...)...)
		if r.code != code {
			t.Fatalf("compare with %s exited with %d, want %d: %s", name, r.code, code, r.stderr)
		}
		_, lines := compareJSON(t, r)
		return strings.Join(lines, "")
	}
	entries := s.ok(t, "export", "entries", "--board", "b", "--format", "csv")
	wins := []string{"--tie-breaker", "wins=tie_breakers.wins"}
	if got := compare(exitOK, "x.csv", entries, wins...); got != "" {
		t.Errorf("differences from an export of the same board: %q, want none", got)
	}
	swapped := strings.NewReplacer("1,ada", "2,ada", "2,bob", "1,bob").Replace(entries)
	if got, want := compare(2, "x.csv", swapped, wins...), "tie_rule ada 1225 1225 1 2\ntie_rule bob 1225 1225 2 1\n"; got != want {
		t.Errorf("differences from the board with two users swapped: %q, want %q", got, want)
	}
	got := compare(2, "x.csv", "id;total;w\nada;12,25;3\nbob;12,25;1\neve;x;0\neve;1,00;0\nbad\nmia;2,00;0\nmia;3,00;0\n",
		"--delimiter", ";", "--user", "id", "--score", "total", "--decimal-comma", "--score-format", "decimal", "--tie-breaker", "wins=w")
	want := "invalid_there eve - - 0 0\n" + "invalid_there record 6: \"bad\" - - 0 0\n" + "score bob 1225 1225 2 2\n" + "repeated_there mia - 300 0 0\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	got = compare(2, "pages.json", `{"members":[{"publicID":"ada","score":12.25,"rank":1},{"publicID":"bob","score":12.25,"rank":2},{"publicID":"eve","score":0,"rank":3}]}`, "--system", "podium", "--score-format", "decimal")
	if want := "score eve 100 0 3 3\n"; got != want {
		t.Errorf("differences from Podium's pages: %q, want %q", got, want)
	}
	s.fails(t, exitFailure, []string{`no column "score"`}, "compare", "-b", "b", "--with", writeFile(t, "x.csv", "a,b\n"))
	s.fails(t, exitFailure, []string{"no such file"}, "compare", "-b", "b", "--with", filepath.Join(t.TempDir(), "none"))
	s.fails(t, exitFailure, []string{"not a regular file"}, "compare", "-b", "b", "--with", t.TempDir())
	s.fails(t, exitFailure, []string{"board not found"}, "compare", "-b", "none", "--with", writeFile(t, "x.csv", "a,b\n"))
	s.fails(t, exitFailure, []string{"download it again"}, "compare", "-b", "b", "--with", writeFile(t, "x.csv.gz", gzipText(t, "user_id,score\nada,1\n")[:35]))
}

func TestCompareAnEmptyBoard(t *testing.T) {
	s := startInsecure(t)
	checkContains(t, s.ok(t, "compare", "--with", writeFile(t, "x.csv", "user_id,points\n")), "0 users here, 0 in")
	r := s.do(t, "compare", "--with", writeFile(t, "x.csv", "user_id,points\nada,1\n"), "--recheck-after", "0s", "-o", "csv")
	r.mustFail(t, 2, []string{"1 difference"}, []string{"compare"})
	checkContains(t, r.stdout, "ada,missing_here,,1,")
}

// The test walks the guide as an engineer would, with a leaderboard of Podium: a sorted set, to which
// the game servers add points.
func TestMigratingGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	onRedis(t, func(t *testing.T, addr string, c *redis.Client) {
		s := startInsecure(t)
		t.Chdir(t.TempDir())
		want := map[string]float64{}
		matches, both := 0, false
		play := func(user string, points int) {
			t.Helper()
			want[user] += float64(points)
			if err := c.ZIncrBy(t.Context(), "arena", float64(points), user).Err(); err != nil {
				t.Fatal(err)
			}
			if matches++; both {
				s.ok(t, "submit", user, "--board", "arena", "--points", strconv.Itoa(points), "--match", fmt.Sprint("m", matches))
			}
		}
		for i := range 300 {
			play(fmt.Sprintf("player-%d", i), 1000+i%100) // each score three times
		}
		missed := func() { // a result that does not arrive here
			both = false
			play("player-7", 5000)
			both = true
		}
		steps := []struct{ after func() }{
			{}, // the board, and a dry run
			{after: func() { both = true; play("player-1", 9000); play("newcomer", 7000) }}, // the copy
			{after: func() { play("player-2", 8000) }},                                      // the import
			{after: func() { // the comparison
				missed()
				report, lines := compareJSON(t, s.do(t, "compare", "--board", "arena", "--with", "redis://"+addr+"/arena", "--recheck-after", "0s", "--json"))
				if report.Counts["score"] != 1 || !strings.Contains(strings.Join(lines, ""), "score player-7 1007 6007") {
					t.Errorf("after a result was lost, compare lists %q, want the score of player-7", lines)
				}
				s.ok(t, "submit", "player-7", "--board", "arena", "--points", "5000", "--match", fmt.Sprint("m", matches))
			}},
			{}, // the end
		}
		blocks := strings.Split(string(guide), "```sh\n")[1:]
		if len(blocks) != len(steps) {
			t.Fatalf("the guide has %d blocks of commands, want %d", len(blocks), len(steps))
		}
		for i, block := range blocks {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				args := strings.Fields(strings.ReplaceAll(line, "127.0.0.1:6379", addr))
				switch {
				case len(args) == 0:
				case args[0] == "leaderboard":
					out := s.ok(t, args[1:]...)
					if args[1] == "compare" {
						if n := strings.Count(out, "tie_rule"); n != 1 || strings.Contains(out, "score,") {
							t.Errorf("%s prints %q, want differences of the kind tie_rule only", line, out)
						}
					}
				case args[0] == "redis-cli":
					command := make([]any, len(args)-1)
					for j, arg := range args[1:] {
						command[j] = arg
					}
					if got, err := c.Do(t.Context(), command...).Int(); err != nil || got != 1 {
						t.Fatalf("%s returns %d, error %v; want 1", line, got, err)
					}
				default:
					t.Fatalf("the test cannot run the line %q", line)
				}
			}
			if after := steps[i].after; after != nil {
				after()
			}
		}
		if diff := cmp.Diff(want, scoresOf(t, s, "arena")); diff != "" {
			t.Errorf("scores after the move (-want +got):\n%s", diff)
		}
		if left, err := c.Keys(t.Context(), "*").Result(); err != nil || len(left) != 1 {
			t.Errorf("keys in Redis after the move: %v, error %v; want the key arena only", left, err)
		}
	})
}
