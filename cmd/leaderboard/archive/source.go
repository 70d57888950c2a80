package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
)

// Source is the service whose seasons are archived.
type Source struct {
	Scores pb.LeaderboardServiceClient
	Admin  pb.AdminServiceClient
}

// NewSource returns the service at the other end of a connection.
func NewSource(conn grpc.ClientConnInterface) Source {
	return Source{pb.NewLeaderboardServiceClient(conn), pb.NewAdminServiceClient(conn)}
}

const maxPage = 1000 // of acts, bans and seasons

// statusSealed is the status of a season with final standings.
const statusSealed = "sealed"

func (s *Source) boards(ctx context.Context, only string) ([]*pb.Board, error) {
	if only != "" {
		res, err := s.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: only})
		return []*pb.Board{res.GetBoard()}, err
	}
	res, err := s.Scores.ListBoards(ctx, &pb.ListBoardsRequest{})
	return res.GetBoards(), err
}

// seasons returns the ids of the seasons that are sealed or, if open is true, have begun.
func (s *Source) seasons(ctx context.Context, board string, open bool) (ids []string, err error) {
	req := &pb.ListSeasonsRequest{Board: board, Limit: new(int32(maxPage))}
	for {
		res, err := s.Scores.ListSeasons(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, season := range res.GetData().GetSeasons() {
			if season.GetStatus() == statusSealed || open && season.GetStatus() != "upcoming" {
				ids = append(ids, season.GetId())
			}
		}
		if req.PageToken = res.GetData().GetNextPageToken(); req.PageToken == "" {
			return ids, nil
		}
	}
}

// season returns a season. The server may need longer than a call for a checksum: it continues, and answers a later call.
func (s *Source) season(ctx context.Context, board, id string, checksum bool) (season *pb.ListSeasonsResponse_Season, err error) {
	return season, client.Retry(ctx, func() error {
		res, err := s.Scores.GetSeason(ctx, &pb.GetSeasonRequest{Board: board, Season: id, Checksum: checksum})
		season = res.GetData()
		return err
	})
}

// erasures returns the records of erasures at a time or later.
func (s *Source) erasures(ctx context.Context, since time.Time) (rows []erasureRow, err error) {
	req := &pb.ListActsRequest{Action: "user.erase", Limit: new(int32(maxPage))}
	if !since.IsZero() {
		req.Since = since.UTC().Format(time.RFC3339)
	}
	for {
		res, err := s.Admin.ListActs(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, act := range res.GetActs() {
			row := erasureRow{Act: act.GetId(), Hash: act.GetUserHash(), ErasedAt: instant(act.GetAt())}
			if act.CompletedAt != nil {
				row.Act += "/outcome"
			}
			if row.Hash != "" && row.ErasedAt != nil {
				rows = append(rows, row)
			}
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			return rows, nil
		}
	}
}

func (s *Source) bans(ctx context.Context) (rows []banRow, err error) {
	req := &pb.ListBansRequest{IncludeLifted: true, Limit: new(int32(maxPage))}
	for {
		res, err := s.Admin.ListBans(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, b := range res.GetBans() {
			rows = append(rows, newBanRow(b))
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			return rows, nil
		}
	}
}

// markOf returns a text that changes with each change of a season: of its results, of its final standings, and of
// the board, if a later one has the same id.
func markOf(b *pb.Board, season *pb.ListSeasonsResponse_Season) string {
	micros := func(t interface{ AsTime() time.Time }, ok bool) string {
		if !ok {
			return "-"
		}
		return strconv.FormatInt(t.AsTime().UnixMicro(), 10)
	}
	amendments := season.GetAmendments()
	amended := "-"
	if n := len(amendments); n > 0 {
		amended = micros(amendments[n-1].GetAt(), true)
	}
	return fmt.Sprintf("1 %s %s %d %s %s", micros(b.GetCreatedAt(), b.CreatedAt != nil), micros(season.GetSealedAt(), season.SealedAt != nil),
		len(amendments), amended, micros(season.GetChangedAt(), season.ChangedAt != nil))
}

// A copier copies a season from the service to a writer.
type copier struct {
	board    *pb.Board
	writer   writer
	progress func(rows int64)

	results, entrants, rows int64
	hash                    hash.Hash // of the overall standings: see ranking.Reader.Checksum

	resultRows   []resultRow
	standingRows []standingRow
	userRows     []userRow
	voidRows     []voidRow
}

const batchRows = 5000 // written at once

// copy returns the checksum of the overall standings.
func (c *copier) copy(ctx context.Context, s *Source, season string) (checksum string, err error) {
	c.hash = sha256.New()
	ctx, cancel := context.WithCancel(ctx) // ends the stream after an error
	defer cancel()
	stream, err := s.Admin.ExportResults(ctx, &pb.ExportResultsRequest{
		Board: c.board.GetBoardId(), Season: season, IncludeVoids: true, IncludeEnds: true, IncludeProfiles: true, IncludeStandings: true,
	})
	if err != nil {
		return "", err
	}
	for {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.add(res)
		}
		if err != nil {
			return "", err
		}
		if c.rows++; c.rows%1000 == 0 {
			c.progress(c.rows)
		}
	}
	err = errors.Join(flush(&c.resultRows, c.writer.results, 0), flush(&c.userRows, c.writer.profiles, 0),
		flush(&c.voidRows, c.writer.voids, 0), flush(&c.standingRows, c.writer.standings, 0))
	return hex.EncodeToString(c.hash.Sum(nil)), err
}

// flush writes the rows if there are more than limit.
func flush[R row](rows *[]R, write func([]R) error, limit int) error {
	if len(*rows) <= limit {
		return nil
	}
	err := write(*rows)
	*rows = (*rows)[:0]
	return err
}

func (c *copier) add(res *pb.ExportResultsResponse) error {
	board := c.board.GetBoardId()
	switch {
	case res.GetResult() != nil:
		r, err := newResultRow(board, res)
		if err != nil {
			return err
		}
		c.results++
		c.resultRows = append(c.resultRows, r)
		return flush(&c.resultRows, c.writer.results, batchRows-1)
	case res.GetProfile() != nil:
		r, err := newProfileRow(res.GetProfile())
		if err != nil {
			return err
		}
		c.userRows = append(c.userRows, r)
		return flush(&c.userRows, c.writer.profiles, batchRows-1)
	case res.GetVoid() != nil:
		c.voidRows = append(c.voidRows, newVoidRow(board, res.GetVoid()))
		return flush(&c.voidRows, c.writer.voids, batchRows-1)
	case res.GetStanding() != nil:
		st := res.GetStanding()
		if st.GetDivision() == "" {
			c.entrants++
			c.hashStanding(st.GetEntry())
		}
		c.standingRows = append(c.standingRows, newStandingRow(board, st))
		return flush(&c.standingRows, c.writer.standings, batchRows-1)
	}
	return nil // the early end of the season is in its row
}

func (c *copier) hashStanding(e *pb.Entry) {
	line := append([]byte(e.GetUserId()), '\t')
	line = append(strconv.AppendInt(line, e.GetScore(), 10), '\t')
	for i, tie := range e.GetTieBreakers() {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, tie, 10)
	}
	line = append(line, '\t')
	if e.AchievedAt != nil {
		line = e.GetAchievedAt().AsTime().AppendFormat(line, time.RFC3339Nano)
	}
	if c.board.GetMinResults() > 0 || len(c.board.GetStatuses()) > 0 {
		line = append(append(line, '\t'), statusText(e.Status)...)
	}
	c.hash.Write(append(line, '\n'))
}

func newSeasonRow(b *pb.Board, s *pb.ListSeasonsResponse_Season, at time.Time) (seasonRow, error) {
	at = leaderboard.Truncate(at)
	r := seasonRow{
		Board: b.GetBoardId(), Season: s.GetId(), StartsAt: instant(s.GetStart()), EndsAt: instant(s.GetEnd()), EndedAt: instant(s.GetEndedAt()),
		SealedAt: instant(s.GetSealedAt()), Mark: markOf(b, s), ArchivedAt: &at,
	}
	if len(s.GetAmendments()) == 0 {
		return r, nil
	}
	type amendment struct {
		At     time.Time `json:"at"`
		Reason string    `json:"reason"`
	}
	var list []amendment
	for _, a := range s.GetAmendments() {
		list = append(list, amendment{a.GetAt().AsTime(), a.GetReason()})
	}
	text, err := json.Marshal(list)
	r.Amendments = string(text)
	return r, err
}
