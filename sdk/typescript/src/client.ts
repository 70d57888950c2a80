// A client of leaderboard servers, for browsers, Node and Deno. It has no dependencies.
import type * as api from "./types.gen.ts";

export type * from "./types.gen.ts";

/** Options of a client. */
export interface Options {
  /** An API key or a JSON web token. Without key and token, calls have no credentials. */
  key?: string;
  /**
   * Returns a JSON web token. The client calls it before the first call, with an empty text, and again with each
   * token that the server rejects. If it returns the rejected token again, the call fails.
   */
  token?: (rejected: string) => string | Promise<string>;
  /** Sends the requests; by default the global fetch. */
  fetch?: typeof fetch;
  /** Bounds each attempt, in milliseconds; by default 30,000. It does not apply to watch. */
  timeout?: number;
  /** Bounds the time from the first attempt to the last, in milliseconds; by default 120,000. In watch, the time
   *  without an event. A negative value disables retries. */
  retryFor?: number;
  /** For tests: the time in milliseconds, and a wait. */
  clock?: { now(): number; sleep(ms: number, signal?: AbortSignal): Promise<void> };
}

/** An invalid field of a request, such as results[3].score. */
export interface Field { field: string; description: string }

/** A refusal by the server. docs/api.md lists statuses and reasons. */
export class LeaderboardError extends Error {
  override name = "LeaderboardError";
  /** The API's reason. It is absent if a proxy answered. */
  reason?: api.ErrorReason;
  /** The invalid fields. */
  fields: Field[] = [];
  /** Describes a rejected result. The server rejects the same result again each time. */
  outcome?: api.Outcome;
  /** The result that counts if the reason is REVISION_CHANGED. */
  result?: api.Result;
  /** Names the call in the server's logs. */
  requestId?: string;

  /** status is the HTTP status; retryAfter is the delay in milliseconds that the server demands, or 0. */
  constructor(readonly status: number, message: string, public retryAfter: number = 0) { super(message); }
}

/** The connection broke or timed out. Whether the call had an effect is unknown. */
export class ConnectionError extends Error { override name = "ConnectionError"; }

/** Optional parameters of a batch, as in SubmitScoreQuery. */
export type BatchOptions = api.SubmitScoreQuery;

const SILENCE = 20_000; // servers send an event at least every 15 seconds
const FIRST_DELAY = 100, LAST_DELAY = 5_000, LONGEST = 86_400_000;
// Bounds of one batch. OVERHEAD is for what surrounds the results.
const BATCH_RESULTS = 5_000, BATCH_BYTES = 16 << 20, BATCH_VALUES = 500_000, OVERHEAD = 100;
// HTTP statuses of codes, for errors inside streams.
const STATUSES: Record<number, number> = { 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 409, 14: 503, 16: 401 };

interface ErrorBody { code?: number; message?: string; details?: Record<string, unknown>[] }
interface Request { method: string; path: string; query?: object; body?: unknown; safe?: boolean; signal?: AbortSignal }

const delayMs = (ms: number) => Math.min(Math.max(ms, 0), LONGEST);

/** Returns the milliseconds of a header Retry-After: seconds, or a date. */
function retryAfter(value: string | null, now: number): number {
  if (/^\d+$/.test(value ?? "")) return delayMs(Number(value) * 1000);
  return delayMs(Date.parse(value ?? "") - now || 0);
}

function readError(error: LeaderboardError, body: ErrorBody): LeaderboardError {
  for (const d of Array.isArray(body.details) ? body.details : []) {
    const { "@type": type, ...rest } = d;
    switch (String(type).split(".").pop()) {
      case "ErrorInfo": error.reason = d.reason as api.ErrorReason; break;
      case "BadRequest": error.fields = d.field_violations as Field[]; break;
      case "RetryInfo": error.retryAfter = Math.max(error.retryAfter, delayMs(parseFloat(String(d.retry_delay)) * 1000 || 0)); break;
      case "Outcome": error.outcome = rest as api.Outcome; break;
      case "Result": error.result = rest as api.Result; break;
    }
  }
  error.message = `${error.status} ${error.reason ?? ""}: ${body.message}`;
  return error;
}

/** Encodes a body. A bigint becomes a text, which servers accept. Numbers that JSON would change are errors. */
function encode(value: unknown): string {
  return JSON.stringify(value, (key, v: unknown) => {
    if (typeof v === "number" && !Number.isFinite(v)) throw new RangeError(`${key}: ${v} is not a number`);
    return typeof v === "bigint" ? v.toString() : v;
  });
}

/** Refuses integers that may have been rounded before. */
function checkIntegers(fields: object): void {
  for (const [name, value] of Object.entries(fields))
    for (const v of Array.isArray(value) ? value : [value])
      if (typeof v === "number" && !Number.isSafeInteger(v) && !(name === "top_percent" && Number.isFinite(v)))
        throw new RangeError(`${name}: ${v} is not an exact integer; use a bigint`);
}

/** Appends ids to a path. fetch removes the segments "." and "..", so such ids are refused; no new id can be one. */
function pathOf(path: string, ...ids: string[]): string {
  for (const id of ids) {
    try {
      if (id === "" || id === "." || id === "..") throw new URIError();
      path += "/" + encodeURIComponent(id); // fails if id has half of a surrogate pair
    } catch {
      throw new TypeError(`${JSON.stringify(id)} is not an id`);
    }
  }
  return path;
}

/**
 * Returns result with a random match_id and with achieved_at, the present, where it has none. With a season and
 * without achieved_at, the server takes the time of the stored result, so none is set. Submits prepare each result. A
 * caller that may submit a result again later, such as after a reload, stores the prepared result first.
 */
export function prepare(result: api.ResultInput): api.ResultInput {
  const r = { ...result };
  r.match_id ||= Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  if (!r.achieved_at && !r.season) r.achieved_at = new Date().toISOString();
  return r;
}

function encodeResult(result: api.ResultInput): string {
  try {
    checkIntegers(result);
    return encode(prepare(result));
  } catch (error) {
    throw new RangeError(`the result of user ${JSON.stringify(result.user_id)}: ${(error as Error).message}`);
  }
}

/** Waits between attempts, longer each time. */
class Backoff {
  private next = FIRST_DELAY;
  private readonly end: number;

  constructor(private clock: NonNullable<Options["clock"]>, retryFor: number) { this.end = clock.now() + retryFor; }

  /** Waits for the delay that the server demands, and a random one. Returns false if that would be after the end. */
  async wait(after: number, signal?: AbortSignal): Promise<boolean> {
    const ms = after + this.next / 2 + Math.random() * this.next / 2;
    this.next = Math.min(2 * this.next, LAST_DELAY);
    if (this.clock.now() + ms > this.end) return false;
    await this.clock.sleep(ms, signal);
    return true;
  }
}

const realClock = {
  now: () => Date.now(),
  sleep: (ms: number, signal?: AbortSignal) => new Promise<void>((resolve, reject) => {
    const stop = () => { clearTimeout(timer); reject(signal!.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  }),
};

/** Returns the delay that the server demands before a retry, or undefined if no retry can help. */
function retryDelay(error: unknown, safe: boolean): number | undefined {
  if (error instanceof ConnectionError) return safe ? 0 : undefined;
  if (!(error instanceof LeaderboardError)) return undefined;
  if ([408, 429, 503].includes(error.status)) return error.retryAfter;
  return safe && [502, 504].includes(error.status) ? error.retryAfter : undefined;
}

/** Returns the elements of all pages. */
async function* pages<T>(token: string, read: (token: string) => Promise<{ list: T[]; next: string }>): AsyncGenerator<T, void> {
  for (;;) {
    const { list, next } = await read(token);
    yield* list;
    if (next === "") return;
    if (next === token) throw new Error("the server repeated a page token");
    token = next;
  }
}

/**
 * A client of one server. Calls are retried until they succeed, until an attempt fails with an error that a retry
 * cannot cure, or until retryFor has passed. Each call takes an AbortSignal that ends it.
 */
export class Client {
  private readonly base: string;
  private readonly clock: NonNullable<Options["clock"]>;
  private token: Promise<string> | undefined;

  /** address is the server's URL, such as https://scores.example.org. */
  constructor(address: string, private readonly options: Options = {}) {
    const url = new URL(address);
    if (!/^https?:$/.test(url.protocol) || url.search || url.hash) throw new TypeError(`${address} is not an http or https URL without a query`);
    this.base = address.replace(/\/$/, "");
    this.clock = options.clock ?? realClock;
  }

  /** Returns the board with an id, without a call. The default board has the id "default". */
  board(id: string): BoardClient { return new BoardClient(this, pathOf("/v1/boards", id)); }

  /** Returns the boards that the caller may see. */
  async boards(signal?: AbortSignal): Promise<api.Board[]> {
    return (await this.send<api.ListBoardsResponse>({ method: "GET", path: "/v1/boards", safe: true, signal })).boards;
  }

  /** Submits results of any boards; each needs board_id. Otherwise as BoardClient.submitBatch. */
  submitBatch(results: api.ResultInput[], o: BatchOptions = {}, signal?: AbortSignal): Promise<api.Outcome[]> {
    return this.batch("/v1/results:batch", results, o, signal);
  }

  /** Returns the entries of a user on all boards. */
  async userScores(user: string, query: api.ListUserScoresQuery = {}, signal?: AbortSignal): Promise<api.ListUserScoresUserScores> {
    return (await this.send<api.ListUserScoresResponse>({ method: "GET", path: pathOf("/v1/users", user) + "/scores", query, safe: true, signal })).data!;
  }

  /** Returns the profile of a user. */
  async profile(user: string, signal?: AbortSignal): Promise<api.Profile> {
    return this.send({ method: "GET", path: pathOf("/v1/users", user) + "/profile", safe: true, signal });
  }

  /** Replaces the profile of a user, and returns the one that counts. Only with a revision, it is retried after a broken connection. */
  async putProfile(user: string, body: api.ProfileInput, query: api.PutProfileQuery = {}, signal?: AbortSignal): Promise<api.Profile> {
    checkIntegers(body);
    return this.send({ method: "PUT", path: pathOf("/v1/users", user) + "/profile", query, body, safe: body.revision !== undefined, signal });
  }

  /**
   * Calls a route without a method here, such as POST /v1/users/ann:ban. The path may have a query. After a broken
   * connection, only GET is retried.
   */
  call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    return this.send({ method, path, body, safe: method === "GET", signal });
  }

  /** @internal */
  newBackoff(): Backoff { return new Backoff(this.clock, this.options.retryFor ?? 120_000); }

  /** @internal Calls attempt until it succeeds or until delay returns undefined. */
  async retry<T>(delay: (error: unknown) => number | undefined, attempt: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (const backoff = this.newBackoff(); ;) {
      try {
        return await attempt();
      } catch (error) {
        const after = delay(error);
        if (after === undefined || !(await backoff.wait(after, signal))) throw error;
      }
    }
  }

  /** @internal Makes a call, with retries. */
  async send<T>(r: Request): Promise<T> {
    const body = r.body === undefined ? undefined : typeof r.body === "string" ? r.body : encode(r.body);
    const text = await this.retry((error) => retryDelay(error, r.safe ?? false), async () => {
      const timeout = AbortSignal.timeout(this.options.timeout ?? 30_000);
      const response = await this.open(r, body, r.signal ? AbortSignal.any([r.signal, timeout]) : timeout);
      return this.connected(response.text(), r.signal);
    }, r.signal);
    try {
      return JSON.parse(text) as T;
    } catch {
      throw new Error(`the answer to ${r.method} ${r.path} is not that of a leaderboard server`);
    }
  }

  /** @internal Makes one attempt, or more if the server rejects the token. */
  async open(r: Request, body: string | undefined, signal: AbortSignal): Promise<Response> {
    const q = new URLSearchParams();
    checkIntegers(r.query ?? {});
    for (const [name, value] of Object.entries(r.query ?? {}))
      for (const v of Array.isArray(value) ? value : [value]) if (v !== undefined && v !== "") q.append(name, String(v));
    for (let token = await this.credentials(""); ;) {
      const headers: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
      if (token) headers.Authorization = "Bearer " + token;
      const response = await this.connected((this.options.fetch ?? fetch)(`${this.base}${r.path}${q.size ? "?" + q : ""}`,
        { method: r.method, headers, body, signal, redirect: "manual" }), r.signal);
      if (response.ok) return response;
      const error = this.refusal(response, await this.connected(response.text(), r.signal));
      if (response.status !== 401 || !token) throw error;
      const next = await this.credentials(token);
      if (next === token) throw error;
      token = next;
    }
  }

  /** @internal Makes any failure of the network a ConnectionError, unless the caller has ended the call. */
  async connected<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await promise;
    } catch (error) {
      signal?.throwIfAborted();
      const cause = (error as Error).cause;
      throw new ConnectionError(`${(error as Error).message}${cause instanceof Error ? ": " + cause.message : ""}`, { cause: error });
    }
  }

  private refusal(response: Response, text: string): LeaderboardError {
    const error = new LeaderboardError(response.status, `${response.status}: the answer is not that of a leaderboard server`,
      retryAfter(response.headers.get("Retry-After"), this.clock.now()));
    error.requestId = response.headers.get("X-Request-Id") ?? undefined;
    let body: ErrorBody | undefined;
    try { body = JSON.parse(text); } catch { /* a proxy's page */ }
    return body?.message ? readError(error, body) : error;
  }

  /** @internal The error of the last event of a stream: reconnect or error. The next connection may replace a token that has ended. */
  streamError(data: string, retry: number): Error {
    let body: { error?: ErrorBody } | undefined;
    try { body = JSON.parse(data); } catch (error) { return new ConnectionError("the stream has broken", { cause: error }); }
    const error = readError(new LeaderboardError(STATUSES[body?.error?.code ?? 0] ?? 500, "", delayMs(retry)), body?.error ?? {});
    return error.status === 401 && this.options.token ? new ConnectionError(error.message, { cause: error }) : error;
  }

  /** Returns the token of the next attempt. Calls at the same time share one new token. */
  private async credentials(rejected: string): Promise<string> {
    const { token, key } = this.options;
    if (!token) return key ?? "";
    this.token ??= Promise.resolve(token(""));
    const present = this.token;
    try {
      if (!rejected || (await present) !== rejected) return await present;
      if (this.token === present) this.token = Promise.resolve(token(rejected));
      return await this.token;
    } catch (error) {
      this.token = undefined;
      throw error;
    }
  }

  /** @internal */
  async batch(path: string, results: api.ResultInput[], o: BatchOptions, signal?: AbortSignal): Promise<api.Outcome[]> {
    const encoded = results.map(encodeResult), outcomes: api.Outcome[] = [];
    while (outcomes.length < encoded.length) {
      const first = outcomes.length, part = encoded.slice(first, first + batchLength(encoded, first));
      try {
        outcomes.push(...await this.part(path, part, o, signal));
      } catch (error) {
        if (error instanceof Error) error.message = `results ${first} to ${first + part.length - 1}: ${error.message}`;
        throw error;
      }
    }
    return outcomes;
  }

  /** Submits the results of one request, and again those that have failed, until retryFor is over. */
  private async part(path: string, results: string[], o: BatchOptions, signal?: AbortSignal): Promise<api.Outcome[]> {
    const outcomes: api.Outcome[] = [];
    let pending = [...results.keys()];
    for (const backoff = this.newBackoff(); ;) {
      const body = `${encode(o).slice(0, -1)}${Object.keys(o).length ? "," : ""}"results":[${pending.map((i) => results[i]).join(",")}]}`;
      const answer = await this.send<api.BatchSubmitScoresResponse>({ method: "POST", path, body, safe: true, signal });
      if (answer.outcomes.length !== pending.length) throw new Error(`the server answered with ${answer.outcomes.length} outcomes for ${pending.length} results`);
      pending.forEach((at, i) => { outcomes[at] = answer.outcomes[i]!; });
      pending = pending.filter((at) => outcomes[at]!.status === "FAILED");
      if (!pending.length || !(await backoff.wait(0, signal))) return outcomes;
    }
  }
}

/** Returns how many results from first fit into one request, at least 1. Each JSON value follows a bracket or a comma. */
function batchLength(encoded: string[], first: number): number {
  const utf8 = new TextEncoder();
  let bytes = OVERHEAD, values = OVERHEAD;
  for (let i = first; i < encoded.length; i++) {
    const text = encoded[i]!;
    bytes += utf8.encode(text).length + 1;
    values += text.split(/[,{[]/).length;
    if (i > first && (i - first === BATCH_RESULTS || bytes > BATCH_BYTES || values > BATCH_VALUES)) return i - first;
  }
  return encoded.length - first;
}

/** Calls one board. */
export class BoardClient {
  /** @internal */
  constructor(private readonly client: Client, private readonly path: string) {}

  private get<T>(path: string, query: object | undefined, signal: AbortSignal | undefined): Promise<T> {
    return this.client.send<T>({ method: "GET", path: this.path + path, query, safe: true, signal });
  }

  /** Returns the settings of the board. */
  settings(signal?: AbortSignal): Promise<api.Board> { return this.get("", undefined, signal); }

  /**
   * Submits one result. The answer has the user's score and rank. If the board's rules reject the result, the error is a
   * LeaderboardError with an outcome.
   */
  async submit(result: api.ResultInput, query: api.SubmitScoreQuery = {}, signal?: AbortSignal): Promise<api.SubmitScoreResponse> {
    return this.client.send({ method: "POST", path: this.path + "/scores", query, body: encodeResult(result), safe: true, signal });
  }

  /**
   * Submits any number of results, in requests within the limits of the server, and again those that have FAILED. Returns
   * an outcome for each, in the same order. Rejected results have the status REJECTED and are no error.
   */
  submitBatch(results: api.ResultInput[], o: BatchOptions = {}, signal?: AbortSignal): Promise<api.Outcome[]> {
    return this.client.batch(this.path + "/scores:batch", results, o, signal);
  }

  /** Waits until a result whose status is ACCEPTED is applied or rejected, and returns its state. Gives up after retryFor. */
  waitApplied(accepted: Pick<api.SubmitScoreResponse, "user_id" | "match_id" | "season" | "revision">, signal?: AbortSignal): Promise<api.GetResultResponse> {
    const query = { season: accepted.season, revision: accepted.revision };
    return this.client.retry((error) => (error instanceof LeaderboardError && error.reason === "RESULT_NOT_FOUND" ? 0 : undefined),
      () => this.result(accepted.user_id, accepted.match_id, query, signal), signal);
  }

  /** Returns one page of the ranking, by default the first 10 entries. */
  async top(query: api.ListScoresQuery = {}, signal?: AbortSignal): Promise<api.Leaderboard> {
    return (await this.get<api.ListScoresResponse>("/scores", query, signal)).data!;
  }

  /** Returns all entries of a ranking, from the start that query gives. It reads pages of limit entries, by default 1,000. */
  entries(query: api.ListScoresQuery = {}, signal?: AbortSignal): AsyncGenerator<api.Entry, void> {
    const { page_token = "", ...rest } = { limit: 1000, ...query };
    return pages(page_token, async (token) => {
      const page = await this.top(token ? { ...rest, start_rank: undefined, page_token: token } : rest, signal);
      return { list: page.leaderboard, next: page.next_page_token };
    });
  }

  /** Returns the entries of users whose names or ids begin with prefix. */
  search(query: api.SearchUsersQuery, signal?: AbortSignal): AsyncGenerator<api.Entry, void> {
    return pages(query.page_token ?? "", async (token) => {
      const page = (await this.get<api.SearchUsersResponse>("/users", { ...query, page_token: token }, signal)).data!;
      return { list: page.leaderboard, next: page.next_page_token };
    });
  }

  /** Returns the seasons of the board, the newest first. */
  seasons(signal?: AbortSignal): AsyncGenerator<api.ListSeasonsSeason, void> {
    return pages("", async (token) => {
      const page = (await this.get<api.ListSeasonsResponse>("/seasons", { page_token: token }, signal)).data!;
      return { list: page.seasons, next: page.next_page_token };
    });
  }

  /** Returns the results of a user, the newest season first. */
  results(user: string, query: api.ListUserResultsQuery = {}, signal?: AbortSignal): AsyncGenerator<api.GetResultResponse, void> {
    return pages(query.page_token ?? "", async (token) => {
      const page = await this.get<api.ListUserResultsResponse>(pathOf("/results", user), { ...query, page_token: token }, signal);
      return { list: page.results, next: page.next_page_token };
    });
  }

  /** Returns the entry of a user, with neighbors. Without an entry, the error has the reason ENTRY_NOT_FOUND. */
  async user(user: string, query: api.GetUserScoreQuery = {}, signal?: AbortSignal): Promise<api.GetUserScoreUserScore> {
    return (await this.get<api.GetUserScoreResponse>(pathOf("/scores", user), query, signal)).data!;
  }

  /** Returns the entries of up to 5,000 users, with their ranks among themselves. */
  async lookup(body: api.LookupScoresRequest, signal?: AbortSignal): Promise<api.Leaderboard> {
    return (await this.client.send<api.LookupScoresResponse>({ method: "POST", path: this.path + "/scores:lookup", body, safe: true, signal })).data!;
  }

  /** Returns statistics of a ranking. */
  async stats(query: api.GetStatsQuery = {}, signal?: AbortSignal): Promise<api.GetStatsStats> {
    return (await this.get<api.GetStatsResponse>("/stats", query, signal)).data!;
  }

  /** Returns a season, or the newest with entries if id is "latest". */
  async season(id: string, query: api.GetSeasonQuery = {}, signal?: AbortSignal): Promise<api.ListSeasonsSeason> {
    return (await this.get<api.GetSeasonResponse>(pathOf("/seasons", id), query, signal)).data!;
  }

  /** Returns the state of a result. */
  async result(user: string, match: string, query: api.GetResultQuery = {}, signal?: AbortSignal): Promise<api.GetResultResponse> {
    return this.get(pathOf("/results", user, match), query, signal);
  }

  /** Changes the given fields of a stored result. After a broken connection, it is not retried: it could undo another correction. */
  async correct(user: string, match: string, body: api.CorrectResultRequest, signal?: AbortSignal): Promise<api.CorrectResultResponse> {
    checkIntegers(body);
    return this.client.send({ method: "PATCH", path: this.path + pathOf("/results", user, match), body, signal });
  }

  /** Undoes a result. */
  async retract(user: string, match: string, body: api.RetractResultRequest = {}, signal?: AbortSignal): Promise<api.RetractResultResponse> {
    checkIntegers(body);
    return this.client.send({ method: "POST", path: this.path + pathOf("/results", user, match) + ":retract", body, safe: true, signal });
  }

  /**
   * Returns the top of a ranking now, and again after changes, until signal aborts. If the connection breaks, it reconnects
   * and returns the top at that time. It ends with the first error that a new connection cannot cure, such as a 401 for
   * a token that the option token does not replace, or when retryFor has passed without an event.
   */
  async *watch(query: api.WatchScoresQuery = {}, signal?: AbortSignal): AsyncGenerator<api.Leaderboard, void> {
    for (let backoff = this.client.newBackoff(); ;) {
      try {
        for await (const top of this.stream(query, signal)) {
          yield top;
          backoff = this.client.newBackoff();
        }
      } catch (error) {
        const after = retryDelay(error, true);
        if (after === undefined || !(await backoff.wait(after, signal))) throw error;
      }
    }
  }

  /** Returns the events of one connection. It ends with an error. */
  private async *stream(query: api.WatchScoresQuery, signal?: AbortSignal): AsyncGenerator<api.Leaderboard, void> {
    const end = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => end.abort(new Error("the server is silent")), SILENCE); };
    try {
      heard();
      const response = await this.client.open({ method: "GET", path: this.path + "/watch", query, signal }, undefined,
        signal ? AbortSignal.any([signal, end.signal]) : end.signal);
      const reader = response.body!.getReader(), decoder = new TextDecoder();
      let text = "", event = { name: "", retry: 0, data: "" };
      for (;;) {
        const { done, value } = await this.client.connected(reader.read(), signal);
        if (done) throw new ConnectionError("the server ended the stream");
        heard();
        const lines = (text + decoder.decode(value, { stream: true })).split("\n");
        text = lines.pop()!;
        for (const line of lines.map((l) => l.replace(/\r$/, ""))) {
          const [, name, content] = /^([^:]*):? ?(.*)$/s.exec(line)!;
          if (name === "event") event.name = content!;
          else if (name === "retry") event.retry = parseInt(content!, 10) || 0;
          else if (name === "data") event.data += content;
          if (line !== "") continue;
          if (event.name) throw this.client.streamError(event.data, event.retry);
          if (event.data) {
            clearTimeout(timer); // the caller may take longer than the server is silent
            yield JSON.parse(event.data) as api.Leaderboard;
            heard();
          }
          event = { name: "", retry: 0, data: "" };
        }
      }
    } finally {
      clearTimeout(timer);
      end.abort();
    }
  }
}
