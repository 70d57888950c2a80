-- The archive of a leaderboard service: format 1. "leaderboard archive" creates it.
CREATE SCHEMA IF NOT EXISTS leaderboard;
COMMENT ON SCHEMA leaderboard IS 'Archive of the leaderboard service: results, final standings and profiles of its seasons';

CREATE TABLE leaderboard.archive (
    format     integer PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE leaderboard.archive IS 'One row: the format of these tables';

CREATE TABLE leaderboard.boards (
    board_id    text COLLATE "C" PRIMARY KEY,
    title       text,
    policy      text NOT NULL,
    score_order text NOT NULL,
    unit        text,
    decimals    integer NOT NULL,
    created_at  timestamptz,
    definition  json NOT NULL
);
COMMENT ON TABLE leaderboard.boards IS 'Boards as they were when they were last archived, also boards that were deleted since';
COMMENT ON COLUMN leaderboard.boards.policy IS 'How a score follows from results: BEST, LATEST, SUM, DECAY, COUNT, FIRST, AVERAGE or BEST_K';
COMMENT ON COLUMN leaderboard.boards.score_order IS 'HIGHER_FIRST or LOWER_FIRST';
COMMENT ON COLUMN leaderboard.boards.unit IS 'Unit of the scores, such as ms; NULL is points';
COMMENT ON COLUMN leaderboard.boards.decimals IS 'Decimal places of scores: with 2, the score 1234 is shown as 12.34';
COMMENT ON COLUMN leaderboard.boards.definition IS 'All rules, as "leaderboard board show -o json" prints them';

CREATE TABLE leaderboard.seasons (
    board_id    text COLLATE "C" NOT NULL REFERENCES leaderboard.boards ON DELETE CASCADE,
    season      text COLLATE "C" NOT NULL,
    starts_at   timestamptz,
    ends_at     timestamptz,
    ended_at    timestamptz,
    sealed_at   timestamptz,
    amendments  json,
    results     bigint NOT NULL,
    entrants    bigint NOT NULL,
    checksum    text,
    mark        text NOT NULL,
    archived_at timestamptz NOT NULL,
    PRIMARY KEY (board_id, season)
);
COMMENT ON TABLE leaderboard.seasons IS 'Seasons that are archived';
COMMENT ON COLUMN leaderboard.seasons.ends_at IS 'End of the season, exclusive; NULL if it has none';
COMMENT ON COLUMN leaderboard.seasons.ended_at IS 'When an administrator ended the season early; otherwise NULL';
COMMENT ON COLUMN leaderboard.seasons.sealed_at IS 'When the standings became final; NULL if the season was archived before, and so has no standings';
COMMENT ON COLUMN leaderboard.seasons.amendments IS 'Later changes of the final standings: an array of objects with at and reason';
COMMENT ON COLUMN leaderboard.seasons.results IS 'Number of rows in results';
COMMENT ON COLUMN leaderboard.seasons.entrants IS 'Number of users in the overall standings';
COMMENT ON COLUMN leaderboard.seasons.checksum IS 'SHA-256 of the overall standings, as GET /v1/boards/{board}/seasons/{season}?checksum=true returns it';
COMMENT ON COLUMN leaderboard.seasons.mark IS 'State of the season when it was archived; an empty mark makes the next run archive it again';

CREATE TABLE leaderboard.users (
    user_id      text COLLATE "C" PRIMARY KEY,
    user_hash    text COLLATE "C" NOT NULL UNIQUE,
    display_name text,
    avatar_url   text,
    country      text,
    attributes   json,
    revision     bigint,
    updated_at   timestamptz
);
COMMENT ON TABLE leaderboard.users IS 'Users with results, and their profiles when one of their seasons was last archived. Deleting a user deletes the results and standings';
COMMENT ON COLUMN leaderboard.users.user_hash IS 'SHA-256 of the id, in hexadecimal digits: erasures are applied by it';
COMMENT ON COLUMN leaderboard.users.country IS 'ISO 3166-1 alpha-3';
COMMENT ON COLUMN leaderboard.users.revision IS 'Revision of the profile; NULL without a profile';

CREATE TABLE leaderboard.results (
    board_id     text COLLATE "C" NOT NULL,
    season       text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL REFERENCES leaderboard.users ON DELETE CASCADE,
    match_id     text COLLATE "C" NOT NULL,
    revision     bigint NOT NULL,
    retracted    boolean NOT NULL,
    score        bigint,
    tie_breakers bigint[] NOT NULL,
    achieved_at  timestamptz,
    reset        boolean NOT NULL,
    status       text COLLATE "C" NOT NULL,
    attributes   json,
    metadata     json,
    PRIMARY KEY (board_id, season, user_id, match_id),
    FOREIGN KEY (board_id, season) REFERENCES leaderboard.seasons ON DELETE CASCADE
);
CREATE INDEX results_user ON leaderboard.results (user_id);
CREATE INDEX results_match ON leaderboard.results (board_id, season, match_id);
COMMENT ON TABLE leaderboard.results IS 'The standing revision of each result, and retractions';
COMMENT ON COLUMN leaderboard.results.retracted IS 'A retraction, which has no score: the result does not count';
COMMENT ON COLUMN leaderboard.results.score IS 'Score, or points on boards that add results up; in the unit of the board, without its decimals';
COMMENT ON COLUMN leaderboard.results.tie_breakers IS 'In the order of the tie_breakers in the definition of the board';
COMMENT ON COLUMN leaderboard.results.achieved_at IS 'Time of the event';
COMMENT ON COLUMN leaderboard.results.reset IS 'On SUM boards: the score becomes these points';
COMMENT ON COLUMN leaderboard.results.status IS 'RANKED, DNF, DNS, DSQ, CUT or HORS_CONCOURS';
COMMENT ON COLUMN leaderboard.results.attributes IS 'Attributes that place the user in divisions';

CREATE TABLE leaderboard.standings (
    board_id     text COLLATE "C" NOT NULL,
    season       text COLLATE "C" NOT NULL,
    division     text COLLATE "C" NOT NULL,
    position     bigint NOT NULL,
    user_id      text COLLATE "C" NOT NULL REFERENCES leaderboard.users ON DELETE CASCADE,
    rank         bigint,
    dense_rank   bigint,
    score        bigint NOT NULL,
    score_exact  numeric,
    tie_breakers bigint[] NOT NULL,
    achieved_at  timestamptz,
    status       text COLLATE "C" NOT NULL,
    PRIMARY KEY (board_id, season, division, position),
    FOREIGN KEY (board_id, season) REFERENCES leaderboard.seasons ON DELETE CASCADE
);
CREATE INDEX standings_user ON leaderboard.standings (user_id, board_id, division);
COMMENT ON TABLE leaderboard.standings IS 'Final standings, overall and in each division';
COMMENT ON COLUMN leaderboard.standings.division IS 'attribute:value, such as gender:F; empty for the overall standings';
COMMENT ON COLUMN leaderboard.standings.position IS 'From 1: the ordinal rank. Positions of users who were erased are missing';
COMMENT ON COLUMN leaderboard.standings.rank IS 'Competition rank (1-2-2-4); NULL if the status is not RANKED';
COMMENT ON COLUMN leaderboard.standings.dense_rank IS 'Dense rank (1-2-2-3); NULL if the status is not RANKED';
COMMENT ON COLUMN leaderboard.standings.score_exact IS 'On DECAY and AVERAGE boards: the score before it is rounded';
COMMENT ON COLUMN leaderboard.standings.achieved_at IS 'When the user reached the score; NULL on boards that do not order equal scores by time';
COMMENT ON COLUMN leaderboard.standings.status IS 'RANKED, DNF, DNS, DSQ, CUT, HORS_CONCOURS or TOO_FEW_RESULTS';

CREATE TABLE leaderboard.voids (
    board_id text COLLATE "C" NOT NULL,
    season   text COLLATE "C" NOT NULL,
    match_id text COLLATE "C" NOT NULL,
    reason   text,
    PRIMARY KEY (board_id, season, match_id),
    FOREIGN KEY (board_id, season) REFERENCES leaderboard.seasons ON DELETE CASCADE
);
COMMENT ON TABLE leaderboard.voids IS 'Void matches, whose results do not count';

CREATE TABLE leaderboard.bans (
    user_id  text COLLATE "C" NOT NULL,
    board_id text COLLATE "C" NOT NULL,
    banned   boolean NOT NULL,
    reason   text,
    actor    text,
    at       timestamptz,
    until    timestamptz,
    revision bigint NOT NULL,
    PRIMARY KEY (user_id, board_id)
);
COMMENT ON TABLE leaderboard.bans IS 'All bans of the service at the last run: banned users have no standings';
COMMENT ON COLUMN leaderboard.bans.board_id IS 'Empty for the ban on every board';
COMMENT ON COLUMN leaderboard.bans.banned IS 'False if the ban was lifted';

CREATE TABLE leaderboard.erasures (
    act_id    text COLLATE "C" PRIMARY KEY,
    user_hash text COLLATE "C" NOT NULL,
    erased_at timestamptz NOT NULL
);
COMMENT ON TABLE leaderboard.erasures IS 'Erasures of users that this archive has followed, by their acts in the audit log';

INSERT INTO leaderboard.archive (format) VALUES (1);
