package archive

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
)

//go:embed schema.sql
var schemaSQL string

// advisoryLock is held by the process that writes an archive, until its connection ends. The number is arbitrary.
const advisoryLock = 0x6c65616465726273

type postgres struct{ conn *pgx.Conn }

// openPostgres connects to the database in a URL. To write, it takes the lock and, without tables, creates them. Errors
// have no password. Errors: [ErrBusy], [ErrNone].
func openPostgres(ctx context.Context, text, password string, write bool) (*postgres, error) {
	c, err := pgx.ParseConfig(text)
	if err != nil {
		// The error of the library may quote parts of the URL.
		return nil, errors.New("the URL of the database is invalid; it has the form postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full, with special characters percent-encoded")
	}
	if c.Password == "" {
		c.Password = password
	}
	c.RuntimeParams["application_name"] = "leaderboard archive"
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, connectError(c, err)
	}
	p := &postgres{conn}
	if err := p.prepare(ctx, write); err != nil {
		return nil, errors.Join(withCure(err), p.close())
	}
	return p, nil
}

func connectError(c *pgx.ConnConfig, err error) error {
	address := c.Host + ":" + strconv.Itoa(int(c.Port))
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return fmt.Errorf("the database at %s refuses the connection: %s (%s); put the password into $%s", address, answer.Message, answer.Code, PasswordEnv)
	}
	if cause := errors.Unwrap(err); cause != nil { // the outer error has the user and the name of the database
		err = cause
	}
	text, _, _ := strings.Cut(err.Error(), "\n") // the next lines have further attempts, such as one without TLS
	return fmt.Errorf("no connection to the database at %s: %s", address, text)
}

// withCure adds what to do.
func withCure(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the database is read-only; give the URL of the primary server, and a user that may write: %w", err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("the user of the database lacks a privilege; it needs CREATE on the database at the first run, and then all privileges on the tables of the schema leaderboard: %w", err)
	case "53100": // disk_full
		return fmt.Errorf("the disk of the database is full; the archive is as it was before this season: %w", err)
	}
	return err
}

func (p *postgres) prepare(ctx context.Context, write bool) error {
	var encoding string
	var schema, archive bool
	err := p.conn.QueryRow(ctx, `SELECT current_setting('server_encoding'), to_regclass('leaderboard.archive') IS NOT NULL,
		EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('leaderboard'))`).Scan(&encoding, &archive, &schema)
	switch {
	case err != nil:
		return err
	case encoding != "UTF8":
		return fmt.Errorf("the encoding of the database is %s, but ids need UTF8; create a database with ENCODING 'UTF8'", encoding)
	case !archive && schema:
		return errors.New("the database has a schema leaderboard of another program; choose another database")
	case !archive && !write:
		return fmt.Errorf("the database has no schema leaderboard: %w", ErrNone)
	}
	if write {
		var locked bool
		if err := p.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(advisoryLock)).Scan(&locked); err != nil {
			return err
		}
		if !locked {
			return ErrBusy
		}
		if !archive {
			err := pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, schemaSQL)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	var stored int
	if err := p.conn.QueryRow(ctx, `SELECT format FROM leaderboard.archive`).Scan(&stored); err != nil {
		return fmt.Errorf("the table leaderboard.archive is not that of an archive; choose another database: %w", err)
	}
	if stored != format {
		return fmt.Errorf("the archive has the format %d, but this program writes the format %d; use the version of the program that wrote it, or a later one", stored, format)
	}
	return nil
}

// values returns the values of a row with these columns for a COPY. PostgreSQL has no zero byte in texts; only reasons may have one.
func values[R row](columns []column, r *R) []any {
	v := reflect.ValueOf(r).Elem()
	list := make([]any, v.NumField())
	for i, c := range columns {
		switch x := v.Field(i).Interface().(type) {
		case string:
			switch {
			case x == "" && c.optional:
			case c.name == "score_exact":
				list[i] = numeric(x)
			default:
				list[i] = strings.ReplaceAll(x, "\x00", "\u2400")
			}
		case []int64:
			list[i] = append([]int64{}, x...)
		default:
			list[i] = x
		}
	}
	return list
}

// numeric returns a decimal number such as -99.5 or 3.2e-41, or an invalid value.
func numeric(text string) pgtype.Numeric {
	mantissa, exponent, scientific := strings.Cut(text, "e")
	if !scientific {
		exponent = "0"
	}
	exp, err := strconv.ParseInt(exponent, 10, 16)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if err != nil || !ok {
		return pgtype.Numeric{}
	}
	return pgtype.Numeric{Int: n, Exp: int32(exp) - int32(len(fraction)), Valid: true}
}

func names[R row]() (list []string) {
	for _, c := range columnsOf[R]() {
		list = append(list, c.name)
	}
	return list
}

func copyRows[R row](ctx context.Context, tx pgx.Tx, table pgx.Identifier, rows []R) error {
	columns := columnsOf[R]()
	_, err := tx.CopyFrom(ctx, table, names[R](), pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) { return values(columns, &rows[i]), nil }))
	return err
}

// query yields the rows of a table that a condition selects.
func query[R row](ctx context.Context, p *postgres, table, condition string, args ...any) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var list []string
		fields := reflect.TypeFor[R]()
		for i, c := range columnsOf[R]() {
			name := c.name
			if fields.Field(i).Type.Kind() == reflect.String {
				name = "COALESCE(" + name + "::text, '')"
			}
			list = append(list, name)
		}
		rows, err := p.conn.Query(ctx, "SELECT "+strings.Join(list, ", ")+" FROM leaderboard."+table+" "+condition, args...)
		if err == nil {
			defer rows.Close()
			for rows.Next() {
				var r R
				v := reflect.ValueOf(&r).Elem()
				targets := make([]any, v.NumField())
				for i := range targets {
					targets[i] = v.Field(i).Addr().Interface()
				}
				if err := rows.Scan(targets...); err != nil {
					yield(r, err)
					return
				}
				if !yield(r, nil) {
					return
				}
			}
			err = rows.Err()
		}
		if err != nil {
			var none R
			yield(none, err)
		}
	}
}

// rowsOfTable returns the rows of a table.
func rowsOfTable[R row](ctx context.Context, p *postgres, table, order string) (list []R, err error) {
	for r, err := range query[R](ctx, p, table, order) {
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func (p *postgres) boards(ctx context.Context) ([]boardRow, error) {
	return rowsOfTable[boardRow](ctx, p, "boards", "ORDER BY board_id")
}

func (p *postgres) seasons(ctx context.Context) ([]seasonRow, error) {
	return rowsOfTable[seasonRow](ctx, p, "seasons", "")
}

func (p *postgres) erasures(ctx context.Context) ([]erasureRow, error) {
	return rowsOfTable[erasureRow](ctx, p, "erasures", "")
}

// replace makes the rows of a table those of new. It writes nothing that stays the same.
func replace[R row](ctx context.Context, tx pgx.Tx, table string, rows []R, key string, deletes bool) error {
	if _, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE incoming (LIKE leaderboard."+table+") ON COMMIT DROP"); err != nil {
		return err
	}
	if err := copyRows(ctx, tx, pgx.Identifier{"incoming"}, rows); err != nil {
		return err
	}
	if deletes {
		if _, err := tx.Exec(ctx, "DELETE FROM leaderboard."+table+" old WHERE NOT EXISTS (SELECT FROM incoming WHERE "+equalKeys(key)+")"); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, upsert[R](table, key, "true"))
	return err
}

// equalKeys returns the condition that the rows old and incoming have the same key.
func equalKeys(key string) string {
	var terms []string
	for name := range strings.SplitSeq(key, ", ") {
		terms = append(terms, "incoming."+name+" = old."+name)
	}
	return strings.Join(terms, " AND ")
}

// upsert returns a statement that adds or replaces the rows of the table incoming that differ and satisfy a condition.
func upsert[R row](table, key, condition string) string {
	var sets, before, after []string
	for _, name := range names[R]() {
		sets = append(sets, name+" = excluded."+name)
		before, after = append(before, "old."+name+"::text"), append(after, "excluded."+name+"::text") // json has no equality
	}
	return fmt.Sprintf(`INSERT INTO leaderboard.%s AS old (%s) SELECT DISTINCT ON (%s) %[2]s FROM incoming ON CONFLICT (%[3]s) DO UPDATE SET %[4]s
		WHERE (%[5]s) IS DISTINCT FROM (%[6]s) AND %[7]s`, table, strings.Join(names[R](), ", "), key, strings.Join(sets, ", "), strings.Join(before, ", "), strings.Join(after, ", "), condition)
}

func (p *postgres) write(ctx context.Context, f func(pgx.Tx) error) error {
	return withCure(pgx.BeginFunc(ctx, p.conn, f))
}

func (p *postgres) putBoards(ctx context.Context, rows []boardRow) error {
	return p.write(ctx, func(tx pgx.Tx) error { return replace(ctx, tx, "boards", rows, "board_id", false) })
}

func (p *postgres) putBans(ctx context.Context, rows []banRow) error {
	return p.write(ctx, func(tx pgx.Tx) error { return replace(ctx, tx, "bans", rows, "user_id, board_id", true) })
}

func (p *postgres) putSeason(ctx context.Context, key leaderboard.SeasonKey, fill func(writer) (seasonRow, error)) error {
	return p.write(ctx, func(tx pgx.Tx) error {
		board, season := string(key.Board), string(key.Season)
		for _, table := range []string{"results", "standings", "voids"} {
			if _, err := tx.Exec(ctx, "DELETE FROM leaderboard."+table+" WHERE board_id = $1 AND season = $2", board, season); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO leaderboard.seasons (board_id, season, results, entrants, mark, archived_at) VALUES ($1, $2, 0, 0, '', now())
			ON CONFLICT DO NOTHING`, board, season)
		if err == nil {
			_, err = tx.Exec(ctx, "CREATE TEMPORARY TABLE incoming (LIKE leaderboard.users) ON COMMIT DROP")
		}
		if err != nil {
			return err
		}
		row, err := fill(&postgresWriter{ctx, tx})
		if err != nil {
			return err
		}
		// A user of the season without an incoming profile has none any more.
		if _, err = tx.Exec(ctx, `UPDATE leaderboard.users SET display_name = NULL, avatar_url = NULL, country = NULL, attributes = NULL, revision = NULL, updated_at = NULL
			WHERE revision IS NOT NULL AND user_id IN (SELECT user_id FROM leaderboard.results WHERE board_id = $1 AND season = $2)
			AND NOT EXISTS (SELECT FROM incoming WHERE incoming.user_id = users.user_id)`, board, season); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, upsert[userRow]("users", "user_id", "COALESCE(old.revision, 0) <= excluded.revision")); err != nil {
			return err
		}
		sets := make([]string, 0, len(names[seasonRow]()))
		for i, name := range names[seasonRow]() {
			sets = append(sets, name+" = $"+strconv.Itoa(i+1))
		}
		_, err = tx.Exec(ctx, "UPDATE leaderboard.seasons SET "+strings.Join(sets, ", ")+" WHERE board_id = $1 AND season = $2", values(columnsOf[seasonRow](), &row)...)
		return err
	})
}

type postgresWriter struct {
	ctx context.Context
	tx  pgx.Tx
}

// users adds the users of rows, which results and standings refer to. Equal users follow each other.
func users[R row](w *postgresWriter, rows []R, user func(*R) string) error {
	var ids, hashes []string
	for i := range rows {
		if id := user(&rows[i]); len(ids) == 0 || ids[len(ids)-1] != id {
			ids, hashes = append(ids, id), append(hashes, leaderboard.UserID(id).Digest())
		}
	}
	_, err := w.tx.Exec(w.ctx, `INSERT INTO leaderboard.users (user_id, user_hash) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING`, ids, hashes)
	return err
}

func (w *postgresWriter) results(rows []resultRow) error {
	if err := users(w, rows, func(r *resultRow) string { return r.User }); err != nil {
		return err
	}
	return copyRows(w.ctx, w.tx, pgx.Identifier{"leaderboard", "results"}, rows)
}

func (w *postgresWriter) standings(rows []standingRow) error {
	if err := users(w, rows, func(r *standingRow) string { return r.User }); err != nil {
		return err
	}
	return copyRows(w.ctx, w.tx, pgx.Identifier{"leaderboard", "standings"}, rows)
}

func (w *postgresWriter) profiles(rows []userRow) error {
	return copyRows(w.ctx, w.tx, pgx.Identifier{"incoming"}, rows)
}

func (w *postgresWriter) voids(rows []voidRow) error {
	return copyRows(w.ctx, w.tx, pgx.Identifier{"leaderboard", "voids"}, rows)
}

func (p *postgres) erase(ctx context.Context, rows []erasureRow) (users int64, err error) {
	var hashes []string
	for i := range rows {
		hashes = append(hashes, rows[i].Hash)
	}
	return users, p.write(ctx, func(tx pgx.Tx) error {
		// The user may have come back: the next run reads these seasons again.
		_, err := tx.Exec(ctx, `WITH r AS (SELECT board_id, season, count(*) AS n FROM leaderboard.results JOIN leaderboard.users USING (user_id)
				WHERE user_hash = ANY ($1) GROUP BY 1, 2),
			s AS (SELECT board_id, season, count(*) AS n FROM leaderboard.standings JOIN leaderboard.users USING (user_id)
				WHERE user_hash = ANY ($1) AND division = '' GROUP BY 1, 2)
			UPDATE leaderboard.seasons o SET mark = '', checksum = NULL, results = o.results - r.n, entrants = o.entrants - COALESCE(s.n, 0)
			FROM r LEFT JOIN s USING (board_id, season) WHERE o.board_id = r.board_id AND o.season = r.season`, hashes)
		if err != nil {
			return err
		}
		deleted, err := tx.Exec(ctx, `DELETE FROM leaderboard.users WHERE user_hash = ANY ($1)`, hashes)
		if err != nil {
			return err
		}
		users = deleted.RowsAffected()
		return copyRows(ctx, tx, pgx.Identifier{"leaderboard", "erasures"}, rows)
	})
}

func (p *postgres) read(ctx context.Context, b *pb.Board, global bool) iter.Seq2[*pb.ExportResultsResponse, error] {
	id := b.GetBoardId()
	return func(yield func(*pb.ExportResultsResponse, error) bool) {
		_ = convert(query[resultRow](ctx, p, "results", "WHERE board_id = $1 ORDER BY season, user_id, match_id", id),
			func(r *resultRow) (*pb.ExportResultsResponse, error) { return r.message(client.TakesPoints(b)) }, yield) &&
			convert(query[userRow](ctx, p, "users", `WHERE revision IS NOT NULL AND EXISTS
				(SELECT FROM leaderboard.results r WHERE r.user_id = users.user_id AND r.board_id = $1) ORDER BY user_id`, id), (*userRow).message, yield) &&
			convert(query[voidRow](ctx, p, "voids", "WHERE board_id = $1 ORDER BY season, match_id", id), infallible((*voidRow).message), yield) &&
			convert(query[seasonRow](ctx, p, "seasons", "WHERE board_id = $1 ORDER BY season", id), infallible((*seasonRow).end), yield) &&
			convert(query[banRow](ctx, p, "bans", "WHERE board_id = $1 OR board_id = '' AND $2 ORDER BY user_id, board_id", id, global), infallible((*banRow).message), yield)
	}
}

func infallible[R row](message func(*R) *pb.ExportResultsResponse) func(*R) (*pb.ExportResultsResponse, error) {
	return func(r *R) (*pb.ExportResultsResponse, error) { return message(r), nil }
}

// convert yields the messages of rows. It returns false if yield has, or after an error.
func convert[R row](rows iter.Seq2[R, error], message func(*R) (*pb.ExportResultsResponse, error), yield func(*pb.ExportResultsResponse, error) bool) bool {
	for r, err := range rows {
		var m *pb.ExportResultsResponse
		if err == nil {
			m, err = message(&r)
		}
		if err != nil {
			yield(nil, err)
			return false
		}
		if m != nil && !yield(m, nil) {
			return false
		}
	}
	return true
}

func (p *postgres) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.conn.Close(ctx)
}
