// The calls of the pages, and their errors.
import { parameters, type Board, type Entry as PlainEntry, type ErrorReason, type GetStatsStats, type GetUserScoreUserScore, type Leaderboard as PlainLeaderboard,
  type ListSeasonsSeason, type ListSeasonsSeasons, type ListUserResultsResponse, type ListUserScoresUserScores } from "./api.gen.ts";

export type { Board, ListSeasonsSeason as Season, ListSeasonsSeasons as Seasons, ListUserResultsResponse as Results, GetStatsStats as Stats };
export type UserScores = ListUserScoresUserScores;

/** What a server may know of a user. Servers without profiles send none. */
export interface Profile { display_name?: string; avatar_url?: string; country?: string }
export type Entry = PlainEntry & { profile?: Profile };
export type Leaderboard = Omit<PlainLeaderboard, "leaderboard"> & { leaderboard: Entry[] };
export type UserScore = Omit<GetUserScoreUserScore, "neighbors"> & { neighbors: Entry[]; profile?: Profile };
export type Method = "competition" | "dense" | "ordinal";

/** What a ranking is of. An empty season is the current one, an empty division all users. */
export interface Subject { board: string; season: string; division: string; method: Method }

/** Kinds of problems, each with a text and a remedy of its own. */
export type Kind = "network" | "key" | "forbidden" | "board" | "season" | "user" | "busy" | "unavailable" | "invalid" | "other";

export class Problem extends Error {
  constructor(readonly kind: Kind, readonly reason: ErrorReason | "", message: string) {
    super(message);
  }
}

const kinds: Record<string, Kind> = {
  BOARD_NOT_FOUND: "board", SEASON_NOT_FOUND: "season", ENTRY_NOT_FOUND: "user", RATE_LIMITED: "busy", TOO_MANY_WATCHERS: "busy",
};

const kindOf = (status: number, reason: string): Kind =>
  kinds[reason] ?? (status === 401 ? "key" : status === 403 ? "forbidden" : status === 429 ? "busy" : status === 400 ? "invalid" : status >= 500 ? "unavailable" : "other");

const SILENCE_MS = 40_000; // the server sends data at least every 15 seconds

export type Query = Record<string, string | number | boolean | undefined>;

/** A client of one server. base is its URL without a slash at the end; it is empty for the page's own server. */
export class Client {
  constructor(readonly base: string, public key = "") {}

  boards = async (): Promise<Board[]> => (await this.json<{ boards: Board[] }>("listBoards", "/v1/boards")).boards;
  board = (board: string, signal?: AbortSignal) => this.json<Board>("getBoard", boardPath(board), {}, signal);
  seasons = async (board: string, token = "", signal?: AbortSignal) =>
    (await this.json<{ data: ListSeasonsSeasons }>("listSeasons", boardPath(board) + "/seasons", { limit: 100, page_token: token || undefined }, signal)).data;
  season = async (board: string, season: string, signal?: AbortSignal) =>
    (await this.json<{ data: ListSeasonsSeason }>("getSeason", `${boardPath(board)}/seasons/${encodeURIComponent(season)}`, {}, signal)).data;
  list = async (s: Subject, query: Query, signal?: AbortSignal) =>
    (await this.json<{ data: Leaderboard }>("listScores", boardPath(s.board) + "/scores", { ...ranking(s), ...query }, signal)).data;
  user = async (s: Subject, user: string, query: Query, signal?: AbortSignal) =>
    (await this.json<{ data: UserScore }>("getUserScore", `${boardPath(s.board)}/scores/${encodeURIComponent(user)}`, { ...ranking(s), ...query }, signal)).data;
  stats = async (s: Subject, query: Query, signal?: AbortSignal) =>
    (await this.json<{ data: GetStatsStats }>("getStats", boardPath(s.board) + "/stats", { ...ranking(s), ...query }, signal)).data;
  everywhere = async (user: string, signal?: AbortSignal) =>
    (await this.json<{ data: ListUserScoresUserScores }>("listUserScores", `/v1/users/${encodeURIComponent(user)}/scores`, {}, signal)).data;
  results = (board: string, user: string, query: Query, signal?: AbortSignal) =>
    this.json<ListUserResultsResponse>("listUserResults", `${boardPath(board)}/results/${encodeURIComponent(user)}`, query, signal);

  /** Follows the top of a ranking until the stream ends. The browser's EventSource cannot send a key. */
  async watch(s: Subject, limit: number, stop: AbortSignal, got: (top: Leaderboard) => void): Promise<void> {
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), SILENCE_MS); };
    try {
      heard();
      const answer = await this.request("watchScores", boardPath(s.board) + "/watch", { ...ranking(s), limit }, AbortSignal.any([stop, silence.signal]));
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        const events = (text + value).split("\n\n");
        text = events.pop()!;
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
          if (data && !event.startsWith("event: ")) got(JSON.parse(data) as Leaderboard);
        }
      }
    } catch (error) {
      if (stop.aborted || error instanceof Problem) throw error;
      throw new Problem("network", "", String(error)); // the stream broke, or was silent
    } finally {
      clearTimeout(timer);
    }
  }

  protected async json<T>(operation: string, path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return (await (await this.request(operation, path, query, signal)).json()) as T;
  }

  protected async request(operation: string, path: string, query: Query, signal?: AbortSignal, init?: RequestInit): Promise<Response> {
    const known = parameters[operation] ?? [], q = new URLSearchParams();
    if (known.includes("include_profile")) q.set("include_profile", "true");
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") q.set(name, String(value));
    let answer: Response;
    try {
      answer = await fetch(`${this.base}${path}${q.size ? "?" + q : ""}`, { ...init, signal, headers: this.key ? { Authorization: "Bearer " + this.key } : {} });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem("network", "", String(error));
    }
    if (answer.ok) return answer;
    const body = (await answer.json().catch(() => ({}))) as { message?: string; details?: { reason?: ErrorReason }[] };
    const reason = body.details?.find((d) => d.reason)?.reason ?? "";
    throw new Problem(kindOf(answer.status, reason), reason, body.message ?? answer.statusText);
  }
}

export const boardPath = (board: string) => "/v1/boards/" + encodeURIComponent(board);

const ranking = (s: Subject): Query => ({ season: s.season, division: s.division, method: s.method });

export const toProblem = (error: unknown): Problem => (error instanceof Problem ? error : new Problem("other", "", String(error)));

/** Returns the name that people see of a user. */
export const nameOf = (e: { user_id: string; profile?: Profile }): string => e.profile?.display_name || e.user_id;
