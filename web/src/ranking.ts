// The state of one ranking that a page follows: its board, season, first entries, and what is wrong.
import { toProblem, type Board, type Client, type Leaderboard, type Problem, type Season, type Seasons, type Subject } from "./api.ts";
import { visit, type Baseline } from "./movement.ts";

export type Connection = "connecting" | "live" | "reconnecting" | "off";

/** What the page says about a ranking in a word. */
export type Status = "loading" | "live" | "connecting" | "upcoming" | "grace" | "closed" | "final" | "problem";

const SHOW_MS = 1_000; // at most one change of the list a second, so that rows stand still between two slides
const FIRST_WAIT_MS = 500, LAST_WAIT_MS = 15_000;

const sleep = (ms: number, stop: AbortSignal) =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    stop.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });

export class Ranking {
  subject: Subject | undefined;
  board: Board | undefined;
  season: Season | undefined;
  seasons: Season[] = [];
  /** The token of the next page of seasons, or "". */
  moreSeasons = "";
  current = "";
  top: Leaderboard | undefined;
  baseline: Baseline | undefined;
  problem: Problem | undefined;
  connection: Connection = "off";
  /** Grows with each change of the entries, so that pages below the top are read again. */
  changes = 0;

  private stop = new AbortController();
  private pending: Leaderboard | undefined;
  /** When the shown entries arrived. */
  shownAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private client: Client, private readonly limit: number, private readonly changed: () => void) {}

  get status(): Status {
    if (this.problem) return "problem";
    if (!this.top || !this.board) return "loading";
    if (this.top.sealed || this.season?.status === "sealed") return "final";
    switch (this.season?.status) {
      case "upcoming": case "grace": case "closed": return this.season.status;
    }
    return this.connection === "live" ? "live" : "connecting";
  }

  /** The number of rows of a list: entries without a rank follow the others. */
  get rows(): number { return this.total + (this.top?.unranked ?? 0); }

  /** The number of entries with a rank that a list can show. */
  get total(): number { return this.top?.total ?? this.top?.leaderboard.length ?? 0; }

  close(): void {
    this.stop.abort();
    clearTimeout(this.timer);
    this.timer = this.pending = undefined;
  }

  /** Shows a ranking. Without a season it is the current one or, between seasons, the latest with entries. */
  open(subject: Subject, client = this.client): void {
    this.close();
    this.client = client;
    this.stop = new AbortController();
    if (subject.board !== this.subject?.board) {
      this.board = undefined;
      this.seasons = [];
    }
    this.subject = subject;
    this.top = this.season = this.problem = this.baseline = undefined;
    this.connection = "off";
    this.changed();
    void this.run(this.stop.signal);
  }

  async readMoreSeasons(): Promise<void> {
    const { board } = this;
    if (!board || !this.moreSeasons) return;
    const more = await this.client.seasons(board.board_id, this.moreSeasons, this.stop.signal);
    if (board !== this.board) return;
    this.seasons = [...this.seasons, ...more.seasons];
    this.moreSeasons = more.next_page_token;
    this.changed();
  }

  private async run(stop: AbortSignal): Promise<void> {
    for (let wait = FIRST_WAIT_MS; !stop.aborted; wait = Math.min(2 * wait, LAST_WAIT_MS)) {
      try {
        if (!this.top) await this.load(stop);
        if (stop.aborted) return;
        if (this.status === "final" || this.status === "upcoming") return;
        if (this.connection === "off") this.connect("connecting");
        await this.client.watch(this.subject!, this.limit, stop, (top) => { wait = FIRST_WAIT_MS; this.receive(top); });
      } catch (error) {
        if (stop.aborted) return;
        const problem = toProblem(error), repeats = ["network", "busy", "unavailable"].includes(problem.kind);
        if (!this.top || !repeats) this.problem = problem;
        if (!repeats) return this.changed();
      }
      if (stop.aborted) return;
      this.connect("reconnecting");
      await sleep(wait * (0.5 + Math.random() / 2), stop);
    }
  }

  private connect(connection: Connection): void {
    this.connection = connection;
    this.changed();
  }

  private async load(stop: AbortSignal): Promise<void> {
    const { client } = this, subject = this.subject!;
    const reads = [client.board(subject.board, stop), client.seasons(subject.board, "", stop)] as const;
    for (const read of reads) read.catch(() => undefined); // awaited below
    const top = await client.list(subject, { limit: this.limit }, stop).catch(async (error: unknown) => {
      if (toProblem(error).kind !== "season") throw error;
      await this.take(...reads, stop); // the page lists the seasons that exist
      if (subject.season) throw error;
      this.subject = { ...subject, season: "latest" };
      return client.list(this.subject, { limit: this.limit }, stop);
    });
    await this.take(...reads, stop);
    await this.findSeason(top.season, stop);
    if (stop.aborted) return;
    this.problem = undefined;
    this.show(top);
  }

  private async take(board: Promise<Board>, seasons: Promise<Seasons>, stop: AbortSignal): Promise<void> {
    const read = await board, list = await seasons.catch(() => ({ seasons: [], current: "", next_page_token: "" })); // Cassandra may be down
    if (stop.aborted) return;
    this.board = read;
    [this.seasons, this.current, this.moreSeasons] = [list.seasons, list.current, list.next_page_token];
  }

  private async findSeason(id: string, stop: AbortSignal): Promise<void> {
    const season = this.seasons.find((s) => s.id === id) ?? await this.client.season(this.subject!.board, id, stop).catch(() => undefined);
    if (!stop.aborted) this.season = season;
  }

  private receive(top: Leaderboard): void {
    this.connection = "live";
    this.problem = undefined;
    this.pending = top;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (this.pending) this.show(this.pending);
    }, Math.max(0, this.shownAt + SHOW_MS - Date.now()));
  }

  private show(top: Leaderboard): void {
    this.shownAt = Date.now();
    this.pending = undefined;
    if (!this.baseline || this.top?.season !== top.season) this.baseline = visit(this.client.base, this.subject!, top);
    const { stop } = this;
    if (this.season && this.season.id !== top.season || top.sealed && this.season?.status !== "sealed") {
      void this.findAgain(top.season, stop.signal);
    }
    this.top = top;
    this.changes++;
    this.changed();
  }

  /** Reads a season again after it was sealed, or after the latest season became another one. */
  private async findAgain(id: string, stop: AbortSignal): Promise<void> {
    const seasons = await this.client.seasons(this.subject!.board, "", stop).catch(() => undefined);
    if (!seasons || stop.aborted) return;
    [this.seasons, this.current, this.moreSeasons] = [seasons.seasons, seasons.current, seasons.next_page_token];
    await this.findSeason(id, stop);
    this.changed();
  }

  /** The places by which a user has moved up since the baseline; undefined if the user was not in the list then. */
  movement(user: string, rank: number | undefined): number | undefined {
    const was = this.baseline?.ranks.get(user);
    return was === undefined || rank === undefined ? undefined : was - rank;
  }

  /** The milliseconds until the season ends, or begins if it is upcoming; undefined without such a time. */
  remaining(now = Date.now()): number | undefined {
    const { season } = this, at = season?.status === "upcoming" ? season.start : season?.status === "open" ? season.end : undefined;
    return at === undefined ? undefined : Math.max(0, Date.parse(at) - now);
  }
}
