// The card of a player: rank, distribution, neighbors, results, and the player's other boards.
import { html, LitElement, nothing, type TemplateResult } from "lit";
import { nameOf, toProblem, type Client, type Problem, type Profile, type Results, type Stats, type UserScore, type UserScores } from "./api.ts";
import { type Format } from "./format.ts";
import { formatLink } from "./link.ts";
import { avatar, flag, histogram, name, place, rank } from "./parts.ts";
import type { Ranking } from "./ranking.ts";

const RESULTS = 100, SHOWN = 8, BUCKETS = 24, NEIGHBORS = 3;

export class Card extends LitElement {
  static override properties = { user: {}, changes: {}, me: {}, format: {} };
  declare ranking: Ranking;
  declare client: Client;
  declare format: Format;
  declare user: string;
  declare me: string;
  declare changes: number;
  declare boardTitle: (id: string) => string;

  private score: UserScore | undefined;
  private problem: Problem | undefined;
  private stats: Stats | undefined;
  private results: Results | undefined;
  private everywhere: UserScores | undefined;
  private read = { user: "", changes: -1, subject: undefined as unknown };
  private stop = new AbortController();

  protected override createRenderRoot(): HTMLElement { return this; }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.stop.abort();
  }

  protected override willUpdate(): void {
    const { ranking, read } = this;
    if (read.user !== this.user || read.subject !== ranking.subject) {
      this.stop.abort();
      this.stop = new AbortController();
      this.score = this.problem = this.stats = this.results = this.everywhere = undefined;
      this.read = { user: this.user, changes: -1, subject: ranking.subject };
    }
    if (ranking.top && this.read.changes !== ranking.changes) {
      const first = this.read.changes < 0;
      this.read.changes = ranking.changes;
      void this.readScore(first, this.stop.signal);
    }
  }

  private async readScore(first: boolean, stop: AbortSignal): Promise<void> {
    const { client, user, ranking } = this, subject = { ...ranking.subject!, season: ranking.top!.season };
    const keep = <T>(answer: Promise<T>, put: (value: T) => void) =>
      answer.then((value) => { if (!stop.aborted) { put(value); this.requestUpdate(); } }, () => undefined);
    if (first) {
      void keep(client.stats(subject, { buckets: BUCKETS }, stop), (v) => { this.stats = v; });
      void keep(client.results(subject.board, user, { limit: RESULTS, season: subject.season }, stop), (v) => { this.results = v; });
      void keep(client.everywhere(user, stop), (v) => { this.everywhere = v; });
    }
    try {
      const score = await client.user(subject, user, { neighbors: NEIGHBORS }, stop);
      if (!stop.aborted) [this.score, this.problem] = [score, undefined];
    } catch (error) {
      if (!stop.aborted) this.problem = toProblem(error);
    }
    this.requestUpdate();
  }

  private close = () => { this.dispatchEvent(new CustomEvent("close-card", { bubbles: true, composed: true })); };

  protected override render(): TemplateResult {
    const { t } = this.format.language, e: { user_id: string; profile?: Profile } = this.score ?? { user_id: this.user };
    return html`
      <div class="card-head">${avatar(e)}
        <h2 id="card-title" tabindex="-1">${flag(e.profile, this.format)}${name(e)}</h2>
        <button class="plain" @click=${this.close} aria-label=${t("close")} autofocus>✕</button>
        ${nameOf(e) === this.user ? nothing : html`<p class="id"><bdi>${this.user}</bdi></p>`}
      </div>
      ${this.problem ? html`<p class="notice" role="alert">${this.problem.kind === "user" ? t("noEntry", { user: this.user }) : t("cardFailed")}</p>` : nothing}
      ${this.score ? this.figures(this.score) : this.problem ? nothing : html`<p class="bone"></p><p class="bone"></p>`}
      ${this.score ? this.neighbors(this.score) : nothing}
      ${this.resultList()}${this.boards()}`;
  }

  private figures(s: UserScore): TemplateResult {
    const { format, ranking } = this, board = ranking.board!, { t } = format.language, mine = this.me === this.user;
    return html`
      <dl class="figures">
        <div><dt>${t("rank")}</dt><dd>${place(s, format)}${s.total === undefined ? nothing
          : html` <small>${t("ofTotal", { n: s.total })}</small>`}</dd></div>
        <div><dt>${format.unit(board)}</dt><dd>${format.score(board, s.score!)}</dd></div>
        ${s.rank !== undefined && (s.total ?? 0) >= 20
          ? html`<div><dt>${t("percentile")}</dt><dd>${t("topPercent", { percent: format.percent((100 * s.rank) / s.total!) })}</dd></div>` : nothing}
        ${board.tie_breakers.map((tie, k) => html`<div><dt>${tie.name.replaceAll("_", " ")}</dt><dd>${format.number(s.tie_breakers?.[k] ?? 0)}</dd></div>`)}
      </dl>
      ${this.stats && this.stats.histogram.length > 1 ? histogram(this.stats, board, format, s.score) : nothing}
      <p class="actions"><button @click=${() => this.dispatchEvent(new CustomEvent("choose-me", { bubbles: true, composed: true, detail: mine ? "" : this.user }))}>
        ${t(mine ? "notMe" : "thisIsMe")}</button>
        ${s.rank === undefined ? nothing : html`<a class="button" href=${formatLink({ ...ranking.subject!, rank: this.position(s) })}>${t("showInList")}</a>`}</p>`;
  }

  /** The position of the user's row. Several users may share a rank. */
  private position(s: UserScore): number {
    const i = s.neighbors.findIndex((n) => n.user_id === s.user_id), same = s.neighbors.findIndex((n) => n.rank === s.rank);
    return s.rank! + (s.method === "competition" ? Math.max(0, i - same) : 0);
  }

  private neighbors(s: UserScore): TemplateResult | typeof nothing {
    const { format, ranking } = this, { t } = format.language;
    if (s.neighbors.length < 2) return nothing;
    return html`<section><h3>${t("neighbors")}</h3><ol class="small">${s.neighbors.map((n) => html`
      <li class=${n.user_id === s.user_id ? "mine" : ""}><a href=${formatLink({ ...ranking.subject!, user: n.user_id })}>${rank(n, format)}${avatar(n)}
        <span class="who">${name(n)}</span><span class="score">${format.score(ranking.board!, n.score)}</span></a></li>`)}</ol></section>`;
  }

  private resultList(): TemplateResult | typeof nothing {
    const { format, ranking } = this, board = ranking.board, { t } = format.language;
    const results = (this.results?.results ?? []).filter((r) => r.result && r.status === "APPLIED" && (r.result.points ?? r.result.score) !== undefined);
    if (!board || !results.length) return nothing;
    const value = (r: (typeof results)[number]) => r.result!.points ?? r.result!.score!, lower = board.order === "LOWER_FIRST";
    const best = results.reduce((a, b) => ((lower ? value(b) < value(a) : value(b) > value(a)) ? b : a));
    const newest = results.toSorted((a, b) => (b.result!.achieved_at ?? "").localeCompare(a.result!.achieved_at ?? ""));
    const row = (r: typeof best) => html`<li><span class="who"><bdi>${matchName(r)}</bdi>
      <time datetime=${r.result!.achieved_at ?? ""}>${r.result!.achieved_at ? format.day(r.result!.achieved_at) : ""}</time></span>
      <span class="score">${format.score(board, value(r))}</span></li>`;
    const complete = !this.results!.next_page_token;
    return html`<section><h3>${t(complete ? "bestResult" : "bestOfResults", { n: results.length })}</h3><ol class="small plain-list">${row(best)}</ol>
      <h3>${t(complete ? "lastResults" : "someResults")}</h3><ol class="small plain-list">${newest.slice(0, SHOWN).map(row)}</ol></section>`;
  }

  private boards(): TemplateResult | typeof nothing {
    const { format } = this, { t } = format.language, others = (this.everywhere?.scores ?? []).filter((s) => s.board !== this.ranking.subject!.board);
    if (!others.length) return nothing;
    const newest = new Map(others.map((s) => [s.board, s])); // the last of each board is of the newest season
    return html`<section><h3>${t("otherBoards")}</h3><ol class="small plain-list">${[...newest.values()].map((s) => html`
      <li><a href=${formatLink({ board: s.board, season: s.season, user: this.user })}><span class="who"><bdi>${this.boardTitle(s.board)}</bdi>
        <small><bdi>${s.season === "all" ? t("allTime") : s.season}</bdi></small></span>
        <span class="score">${s.rank === undefined ? place(s, format) : t("rankOf", { rank: s.rank, n: s.total ?? 0 })}</span></a></li>`)}</ol></section>`;
  }
}

/** What a game calls a match, if the metadata says so, else the match's id. */
function matchName(r: Results["results"][number]): string {
  const match = r.result?.metadata?.match;
  return typeof match === "string" ? match : r.match_id;
}

customElements.define("lb-card", Card);
