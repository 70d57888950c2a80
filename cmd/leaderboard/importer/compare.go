package importer

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

// ErrBoardDiffers is the error of "compare" if the board differs from the other system.
var ErrBoardDiffers = errors.New("the board differs from the other system")

const recheckBatch = 1000 // users whose scores are read again in one call

// The kinds of differences.
const (
	kindMissingHere  = "missing_here"
	kindMissingThere = "missing_there"
	kindScore        = "score"
	kindTieRule      = "tie_rule"
	kindLate         = "late"
	kindInvalid      = "invalid_there"
	kindRepeated     = "repeated_there"
)

var kinds = []string{kindMissingHere, kindMissingThere, kindScore, kindTieRule, kindLate, kindInvalid, kindRepeated}

type difference struct {
	User       string `json:"user_id"`
	Kind       string `json:"kind"`
	ScoreHere  *int64 `json:"score_here"`
	ScoreThere *int64 `json:"score_there"`
	RankHere   int64  `json:"rank_here,omitempty"` // ordinal
	RankThere  int64  `json:"rank_there,omitempty"`
	Cause      string `json:"cause"`
}

type report struct {
	Board       string           `json:"board"`
	Season      string           `json:"season"`
	With        string           `json:"with"`
	UsersHere   int64            `json:"users_here"`
	UsersThere  int64            `json:"users_there"`
	Equal       int64            `json:"equal"`
	Counts      map[string]int64 `json:"counts"` // of differences, by kind
	Differences []difference     `json:"differences"`
	Omitted     int64            `json:"omitted"` // differences that are not in the list
}

type compareOptions struct {
	mapping
	board, season           string
	with, format, delimiter string
	limit                   int
	recheckAfter            time.Duration
	all                     string // file
	ignore                  []string
}

// CompareCommand returns the command compare.
func CompareCommand(app *cli.App) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use: "compare --with (FILE | redis://HOST/KEY)", Short: "Compare a board with another system", Args: cli.Exactly(),
		Long: `Compare the scores of a board's season with those of another system: a sorted set in Redis,
which may change meanwhile, or a file with a row for each user. The command lists each
difference with its likely cause:

  missing_here    the user has an entry there only
  missing_there   the user has an entry here only
  score           the scores differ
  tie_rule        the scores are equal, but the order among equal scores differs
  late            the sides differed at first, and agreed when read again after --recheck-after
  invalid_there   the score or the id cannot exist here
  repeated_there  the file has the user several times, with different scores

The exit code is 0 if there is no difference, 2 if there is one, and 1 after any error, also
of the command line. Differences of the kind late, and of the kinds in --ignore, do not
change it.

The order among equal scores is known for Redis, and for files with a column rank. It is
compared where as many users have the score on both sides.

The command sorts both sides in a temporary folder (about 200 bytes for each user), so it
takes the same memory for any number of users. It prints up to --limit differences, and
writes all of them to the file --all. For the URLs of Redis and the systems, see
"leaderboard import --help".`,
		Example: `  leaderboard compare --board arena --with redis://127.0.0.1:6379/arena
  leaderboard compare --board arena --with pages.json --system podium -o json
  leaderboard compare --board weekly --season 2026W47 --with record.csv --system nakama --filter leaderboard_id=weekly`,
		Annotations: map[string]string{client.UsageIsFailure: ""},
	}
	client.AddBoardFlag(cmd, &o.board)
	client.AddSeasonFlag(cmd, &o.season)
	f := cmd.Flags()
	f.StringVar(&o.with, "with", "", "`FILE` with a row for each user, or the URL of a sorted set (required)")
	o.addReadFlags(f)
	o.addFormatFlags(f, &o.format, &o.delimiter)
	f.IntVar(&o.limit, "limit", 1000, "print up to this `number` of differences, 0 to 1000000; all are counted")
	f.StringSliceVar(&o.ignore, "ignore", nil, "`kinds` of differences to count only: they are not listed, and do not change the exit code; with tie_rule, the ranks of equal scores may differ")
	cli.Enum(f, "ignore", kinds...)
	f.StringVar(&o.all, "all", "", "`file` for all differences, as NDJSON")
	f.DurationVar(&o.recheckAfter, "recheck-after", 2*time.Second, "`time` after which users that differ are read again, 0 to 10m")
	return client.DataCommand(app, cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		return runCompare(ctx, c, o, f)
	})
}

func (o *compareOptions) check() error {
	switch {
	case o.with == "":
		return cli.Usagef("--with is missing; give a file, or the URL of a sorted set")
	case o.limit < 0 || o.limit > 1_000_000:
		return cli.Usagef("--limit %d is not between 0 and 1000000", o.limit)
	case o.recheckAfter < 0 || o.recheckAfter > 10*time.Minute:
		return cli.Usagef("--recheck-after %v is not between 0s and 10m", o.recheckAfter)
	}
	for _, kind := range o.ignore {
		if !slices.Contains(kinds, kind) {
			return cli.Usagef("--ignore %q is not one of %s", kind, strings.Join(kinds, ", "))
		}
	}
	from := ""
	if isRedisURL(o.with) {
		if from = o.with; o.format != "" || o.delimiter != "" {
			return cli.Usagef("--format and --delimiter are for files")
		}
	} else if err := checkFormat(o.format, o.delimiter); err != nil {
		return err
	}
	return checkSystem(o.System, from, o.format, o.delimiter)
}

// comparison is a run of the command.
type comparison struct {
	*client.Client
	compareOptions
	sides   *sides
	set     *redisSet // nil for a file
	ordered bool      // whether the order among equal scores there is known
	sealed  bool
	ended   bool
	report  report
	file    *bufio.Writer // for all differences, or nil
	pending []difference  // not read again yet
	waited  bool          // whether the time of --recheck-after has passed
}

func runCompare(ctx context.Context, c *client.Client, o compareOptions, flags *pflag.FlagSet) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: client.BoardName(o.board)})
	if err != nil {
		return err
	}
	order := leaderboard.HigherFirst
	if res.GetBoard().GetOrder() == pb.Board_LOWER_FIRST {
		order = leaderboard.LowerFirst
	}
	k := &comparison{Client: c, compareOptions: o, report: report{Board: client.BoardName(o.board), Counts: map[string]int64{}, Differences: []difference{}}}
	if k.sides, err = newSides(order); err != nil {
		return fmt.Errorf("cannot sort the users in a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, k.sides.close()) }()
	if err := k.writeAll(func() error { return k.run(ctx, res.GetBoard(), flags) }); err != nil {
		return err
	}
	if err := k.print(); err != nil {
		return err
	}
	if n := k.different(); n > 0 {
		return fmt.Errorf("%w: %s", ErrBoardDiffers, cli.Plural(n, "difference", "differences"))
	}
	return nil
}

// writeAll opens the file for all differences, and closes it after f.
func (k *comparison) writeAll(f func() error) error {
	if k.all == "" {
		return f()
	}
	file, err := cli.CreatePrivate(k.all)
	if err != nil {
		return fmt.Errorf("--all: %w", err)
	}
	k.file = bufio.NewWriter(file)
	err = f()
	return errors.Join(err, k.file.Flush(), file.Close())
}

func (k *comparison) run(ctx context.Context, b *pb.Board, flags *pflag.FlagSet) error {
	defer func() {
		if k.set != nil {
			_ = k.set.Close() // nothing was written
		}
	}()
	if err := k.readThere(ctx, b, flags); err != nil {
		return err
	}
	if err := k.readHere(ctx); err != nil {
		return err
	}
	if err := k.sides.placeThere(); err != nil {
		return err
	}
	if err := k.sides.pairs(func(p pair) error { return k.compare(ctx, p) }); err != nil {
		return err
	}
	return k.recheck(ctx)
}

// readThere reads the other system first: a result that arrives on both sides meanwhile is then
// more often seen here.
func (k *comparison) readThere(ctx context.Context, b *pb.Board, flags *pflag.FlagSet) error {
	r, closeInput, err := k.openThere(ctx)
	if err != nil {
		return err
	}
	defer closeInput()
	k.TimeZone, k.needMatch = "UTC", false
	if !flags.Changed("score") && (r.Header() == nil || slices.Contains(r.Header(), "score")) {
		k.Score = "score"
	}
	if err := k.bind(flags, b, r.Header()); err != nil {
		return err
	}
	k.ordered = true
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", k.report.With, err)
		}
		if rec.Err == nil && !k.matches(rec) {
			continue
		}
		if err := k.addThere(rec); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (k *comparison) openThere(ctx context.Context) (records.Reader, func(), error) {
	if isRedisURL(k.with) {
		set, err := openRedis(ctx, k.App, k.with)
		if err != nil {
			return nil, nil, err
		}
		k.set, k.report.With = set, set.url
		bar := k.NewBar("reading "+set.key, set.size, false)
		return set.newReader(ctx, time.Now(), bar), func() { _ = bar.Clear() }, nil
	}
	k.report.With = k.with
	file, info, err := openFile(k.with)
	if err != nil {
		return nil, nil, err
	}
	bar := k.NewBar("reading "+k.with, info.Size(), true)
	r, err := openRecords(io.TeeReader(file, bar), time.Now(), k.System, k.with, k.format, k.delimiter)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return r, func() { _, _ = bar.Clear(), file.Close() }, nil
}

// addThere adds a record, or counts it as invalid.
func (k *comparison) addThere(r records.Record) error {
	k.report.UsersThere++
	user, err := "", r.Err
	if err == nil {
		if v, ok := r.Column(k.User); ok {
			user = v.Text
		}
		var it item
		if it, err = k.item(r, "compare"); err == nil && it.retract {
			k.report.UsersThere--
			return nil
		}
		if err == nil {
			err = leaderboard.UserID(it.result.GetUserId()).Validate()
		}
		if err == nil {
			return k.sides.addThere(it.result.GetUserId(), row{Score: scoreOf(it.result), Ties: it.result.GetTieBreakers()}, k.orderOf(r, it.result.GetUserId()))
		}
	}
	if user == "" {
		user = fmt.Sprintf("record %d: %.200q", r.Line, r.Raw)
	}
	return k.found(difference{User: user, Kind: kindInvalid, Cause: err.Error()})
}

// scoreOf returns the score of a result, or its points.
func scoreOf(r *pb.Result) int64 {
	if r.Points != nil {
		return r.GetPoints()
	}
	return r.GetScore()
}

// orderOf returns bytes that sort users with equal scores as the other system does: Redis by the
// bytes of the member, or from the last to the first if higher scores are better.
func (k *comparison) orderOf(r records.Record, user string) []byte {
	if k.set != nil {
		order := []byte(user)
		if k.sides.order == leaderboard.HigherFirst {
			for i, b := range order {
				order[i] = ^b
			}
			return append(order, 0xff)
		}
		return append(order, 0)
	}
	v, ok := r.Column("rank")
	rank, err := strconv.ParseUint(v.Text, 10, 63)
	if !ok || err != nil {
		k.ordered = false
	}
	return binary.BigEndian.AppendUint64(nil, rank)
}

// readHere reads the season from the best to the worst entry.
func (k *comparison) readHere(ctx context.Context) error {
	limit := int32(1000)
	req := &pb.ListScoresRequest{Board: k.board, Season: k.season, Method: "ordinal", Limit: &limit}
	p := k.NewProgress("reading")
	defer p.End()
	var among int64
	var last *pb.Entry
	for {
		var res *pb.ListScoresResponse
		if err := client.Retry(ctx, func() (err error) { res, err = k.Scores.ListScores(ctx, req); return err }); err != nil {
			return err
		}
		d := res.GetData()
		if d.GetDegraded() {
			return errors.New("ranks are unavailable now; try again once the server has filled its index")
		}
		k.report.Season, k.sealed = d.GetSeason(), d.GetSealed()
		k.ended = d.GetSeasonEnd() != nil && d.GetSeasonEnd().AsTime().Before(time.Now())
		for _, e := range d.GetLeaderboard() {
			if last != nil && last.GetScore() != e.GetScore() {
				if err := k.sides.setSize(last.GetScore(), here, among); err != nil {
					return err
				}
				among = 0
			}
			among, last = among+1, e
			k.report.UsersHere++
			if err := k.sides.addHere(e.GetUserId(), row{e.GetScore(), e.GetTieBreakers(), place{k.report.UsersHere, among}}); err != nil {
				return err
			}
		}
		p.Show(d.GetBoard(), d.GetSeason(), k.report.UsersHere)
		if req.PageToken = d.GetNextPageToken(); req.PageToken == "" {
			break
		}
		req.Season = d.GetSeason() // all pages are of the same season
	}
	if last == nil {
		return nil
	}
	return k.sides.setSize(last.GetScore(), here, among)
}

// compare adds the difference of a user, if there is one.
func (k *comparison) compare(ctx context.Context, p pair) error {
	d := difference{User: p.user, RankThere: p.place.Rank}
	if p.here != nil {
		d.ScoreHere, d.RankHere = &p.here.Score, p.here.Place.Rank
	}
	if n := len(p.there); n > 0 {
		d.ScoreThere = &p.there[n-1].Score
		if k.set == nil && slices.ContainsFunc(p.there, func(r row) bool { return r.Score != *d.ScoreThere }) {
			d.Kind, d.RankThere, d.Cause = kindRepeated, 0, fmt.Sprintf("the file has this user %d times; its last row has the score there", n)
			return k.found(d)
		}
	}
	if d.ScoreHere == nil || d.ScoreThere == nil || *d.ScoreHere != *d.ScoreThere {
		if k.pending = append(k.pending, d); len(k.pending) == recheckBatch {
			return k.recheck(ctx)
		}
		return nil
	}
	if last := p.there[len(p.there)-1]; len(last.Ties) > 0 && !slices.Equal(last.Ties, p.here.Ties) {
		d.Kind, d.Cause = kindScore, fmt.Sprintf("the scores are equal, but the tie-breakers are %v here and %v there", p.here.Ties, last.Ties)
		return k.found(d)
	}
	if k.ordered && p.place.Among != p.here.Place.Among {
		same, err := k.sides.sameSize(*d.ScoreHere)
		if err != nil {
			return err
		}
		if same {
			d.Kind, d.Cause = kindTieRule, k.tieCause(*d.ScoreHere)
			return k.found(d)
		}
	}
	k.report.Equal++
	return nil
}

func (k *comparison) tieCause(score int64) string {
	rule := "there, the order is that of the file's ranks"
	if k.set != nil {
		rule = "there, the bytes of the ids decide"
	}
	return fmt.Sprintf("several users have the score %d; here, the tie-breakers, then who reached it first; %s", score, rule)
}

// recheck reads the pending users again, and adds the differences that remain.
func (k *comparison) recheck(ctx context.Context) error {
	if len(k.pending) == 0 {
		return nil
	}
	if !k.waited {
		k.waited = true
		select {
		case <-time.After(k.recheckAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	users := make([]string, len(k.pending))
	for i, d := range k.pending {
		users[i] = d.User
	}
	scoresHere, err := k.scoresHere(ctx, users)
	if err != nil {
		return err
	}
	scoresThere, err := k.scoresThere(ctx, users)
	if err != nil {
		return err
	}
	for _, d := range k.pending {
		d.ScoreHere = scoresHere[d.User]
		if k.set != nil {
			d.ScoreThere = scoresThere[d.User]
		}
		if err := k.found(k.causeOf(d)); err != nil {
			return err
		}
	}
	k.pending = k.pending[:0]
	return nil
}

func (k *comparison) scoresHere(ctx context.Context, users []string) (map[string]*int64, error) {
	var res *pb.LookupScoresResponse
	if err := client.Retry(ctx, func() (err error) {
		res, err = k.Scores.LookupScores(ctx, &pb.LookupScoresRequest{Board: k.board, Season: k.report.Season, UserIds: users})
		return err
	}); err != nil {
		return nil, err
	}
	scores := map[string]*int64{}
	for _, e := range res.GetData().GetLeaderboard() {
		scores[e.GetUserId()] = &e.Score
	}
	return scores, nil
}

func (k *comparison) scoresThere(ctx context.Context, users []string) (map[string]*int64, error) {
	if k.set == nil {
		return nil, nil
	}
	answers := make([]*redis.FloatCmd, len(users))
	if _, err := k.set.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, user := range users {
			answers[i] = p.ZScore(ctx, k.set.key, user)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%s: %w", k.set.url, k.set.fault(err))
	}
	scores := map[string]*int64{}
	for i, a := range answers {
		if errors.Is(a.Err(), redis.Nil) {
			continue
		}
		text, err := scoreText(strconv.FormatFloat(a.Val(), 'g', -1, 64))
		if err != nil {
			continue // the member was valid when it was read first; now it counts as missing
		}
		result := &pb.Result{}
		if err := k.setScore(result, text); err != nil {
			continue
		}
		scores[users[i]] = new(scoreOf(result))
	}
	return scores, nil
}

// causeOf sets the kind and the likely cause of a difference.
func (k *comparison) causeOf(d difference) difference {
	late := ""
	switch {
	case k.sealed:
		late = "; the season is sealed, so late results do not count here"
	case k.ended:
		late = "; the season has ended, so results that happened later are in the next one here"
	}
	switch {
	case d.ScoreHere == nil && d.ScoreThere == nil, d.ScoreHere != nil && d.ScoreThere != nil && *d.ScoreHere == *d.ScoreThere:
		d.Kind, d.Cause = kindLate, "a result was on its way; the sides agree now"
	case d.ScoreHere == nil:
		d.Kind, d.Cause = kindMissingHere, "not imported, not sent here, or retracted or banned here"+late
	case d.ScoreThere == nil:
		d.Kind, d.Cause = kindMissingThere, "sent here only, or removed or expired there"
	case (*d.ScoreHere > *d.ScoreThere) == (k.sides.order == leaderboard.HigherFirst):
		d.Kind = kindScore
		d.Cause = "better here: a result was not sent there, or there a later score replaced a better one"
		if k.usesPoints {
			d.Cause = "better here: a result was not sent there, or was both imported and sent here"
		}
	default:
		d.Kind = kindScore
		d.Cause = "worse here: a result was not sent here, or the import is older" + late
	}
	return d
}

// found counts a difference, and lists it if there is room.
func (k *comparison) found(d difference) error {
	k.report.Counts[d.Kind]++
	if slices.Contains(k.ignore, d.Kind) {
		return nil
	}
	if len(k.report.Differences) < k.limit {
		k.report.Differences = append(k.report.Differences, d)
	} else {
		k.report.Omitted++
	}
	if k.file == nil {
		return nil
	}
	return json.NewEncoder(k.file).Encode(d)
}

// different returns the number of differences, without those that are gone or ignored.
func (k *comparison) different() (n int64) {
	for kind, count := range k.report.Counts {
		if kind != kindLate && !slices.Contains(k.ignore, kind) {
			n += count
		}
	}
	return n
}

func (k *comparison) print() error {
	return k.Output.Print(func() (cli.Document, error) {
		text, err := json.Marshal(k.report)
		return cli.Document{JSON: text, Rows: "differences", Columns: []string{"user_id", "kind", "score_here", "score_there", "rank_here", "rank_there", "cause"}}, err
	}, k.writeTable)
}

func (k *comparison) writeTable() {
	r := &k.report
	k.Printf("board %s, season %s: %s here, %d in %s, %d equal", cli.Escape(r.Board), cli.Escape(r.Season), cli.Plural(r.UsersHere, "user", "users"), r.UsersThere, cli.Escape(r.With), r.Equal)
	for _, kind := range kinds {
		if n := r.Counts[kind]; n > 0 {
			k.Printf(", %d %s", n, kind)
		}
	}
	k.Println("")
	if len(r.Differences) == 0 {
		return
	}
	number := func(n *int64) string {
		if n == nil {
			return ""
		}
		return k.boardUnit.Format(*n)
	}
	rank := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	t := cli.NewTable(cli.Row{"user", "kind", "here", "there", "rank here", "rank there", "cause"})
	for _, d := range r.Differences {
		t.AppendRow(cli.Row{d.User, d.Kind, number(d.ScoreHere), number(d.ScoreThere), rank(d.RankHere), rank(d.RankThere), d.Cause})
	}
	cli.WriteTable(k.Stdout, t)
	if r.Omitted > 0 {
		k.Printf("and %s; --all FILE writes all of them\n", cli.Plural(r.Omitted, "more difference", "more differences"))
	}
}
