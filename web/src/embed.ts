// The element <leader-board>, for pages of any site. web/README.md and docs/embed.md describe its attributes.
import { html, LitElement, nothing, unsafeCSS, type PropertyValues, type TemplateResult } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { Client, type Board, type Entry, type Method, type UserScore } from "./api.ts";
import embedStyle from "./embed.css";
import { noteRows } from "./flip.ts";
import { Format } from "./format.ts";
import { formatLink } from "./link.ts";
import { avatar, flag, movement, name, podium, rank, statusBadge, stepsOf, ties } from "./parts.ts";
import partsStyle from "./parts.css";
import { heads } from "./problems.ts";
import { Ranking } from "./ranking.ts";
import { chooseLocale, Language, loadLanguage } from "./text.ts";
import themeStyle from "./theme.css";

const ROWS = 10, KIOSK_ROWS = 13, MAX_ROWS = 100, ROTATE_S = 20;

/** The properties that decide what the element reads. */
const subject = ["src", "board", "season", "division", "method", "apiKey", "limit", "kiosk", "user"] as const;

/** In a page of another site, rem is that site's: the element has a unit of its own, which the mode kiosk makes larger. */
const ownUnit = (style: string): string => style.replace(/(-?[\d.]+)rem/g, "calc($1 * var(--unit))");

export class LeaderBoard extends LitElement {
  static override styles = [themeStyle, partsStyle, embedStyle].map((text) => unsafeCSS(ownUnit(text)));
  static override properties = {
    src: {}, board: {}, season: {}, division: {}, method: {}, user: {}, locale: {}, apiKey: { attribute: "api-key" }, limit: { type: Number },
    rotate: { type: Number }, compact: { type: Boolean, reflect: true }, kiosk: { type: Boolean, reflect: true }, theme: { reflect: true },
  };
  /** The server's URL; by default that of the script. */
  declare src: string;
  declare board: string;
  declare season: string;
  declare division: string;
  declare method: Method;
  /** A user whose row is marked, and shown below the others if it is not among them. */
  declare user: string;
  declare locale: string;
  /** A key with the scope read, for servers that require one. Everyone who sees the page can read it. */
  declare apiKey: string;
  declare limit: number;
  /** In the mode kiosk, the seconds for each board; 0 shows one board only. */
  declare rotate: number;
  declare compact: boolean;
  declare kiosk: boolean;
  declare theme: "light" | "dark" | "auto";

  private format = new Format(new Language("en"));
  private client = new Client("");
  private ranking: Ranking | undefined;
  private mine: UserScore | undefined;
  private mineAt = 0;
  private boards: Board[] = [];
  private shown = "";
  private timers: ReturnType<typeof setInterval>[] = [];
  private slide: (() => void) | undefined;

  constructor() {
    super();
    Object.assign(this, { src: new URL(".", import.meta.url).href, board: "default", season: "", division: "", method: "competition", user: "", locale: "",
      apiKey: "", limit: 0, rotate: ROTATE_S, compact: false, kiosk: false, theme: "auto" });
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.timers = [setInterval(() => this.requestUpdate(), 1000)]; // the countdown
    if (this.hasUpdated) this.open();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.timers.forEach(clearInterval);
    this.ranking?.close();
  }

  private get base(): string { return this.src.replace(/\/+$/, ""); }
  private get rows(): number { return Math.min(Math.max(1, this.limit || (this.kiosk ? KIOSK_ROWS : ROWS)), MAX_ROWS); }

  protected override willUpdate(changed: PropertyValues<this>): void {
    if (changed.has("locale") || changed.has("src")) {
      void loadLanguage(chooseLocale([this.locale, document.documentElement.lang, ...navigator.languages].filter(Boolean)), this.base).then((language) => {
        this.format = new Format(language);
        this.setAttribute("dir", language.direction);
        this.setAttribute("lang", language.locale);
        this.requestUpdate();
      });
    }
    if (subject.some((property) => changed.has(property))) this.open();
    if (changed.has("rotate") || changed.has("kiosk")) this.turn();
    this.slide = this.hasUpdated ? noteRows(this.renderRoot) : undefined;
  }

  protected override updated(): void { this.slide?.(); }

  private open(board = this.board): void {
    this.ranking?.close();
    this.client = new Client(this.base, this.apiKey);
    this.mine = undefined;
    this.mineAt = 0;
    this.shown = board;
    const own = board === this.board, ranking = new Ranking(this.client, this.rows, () => { if (ranking === this.ranking) this.changed(); });
    this.ranking = ranking;
    ranking.open({ board, season: own ? this.season : "", division: own ? this.division : "", method: this.method });
  }

  private changed(): void {
    const { ranking, user } = this, top = ranking?.top;
    if (user && top && !top.leaderboard.some((e) => e.user_id === user) && Date.now() - this.mineAt > 2000) {
      this.mineAt = Date.now();
      this.client.user({ ...ranking!.subject!, season: top.season }, user, { neighbors: 0 }).then((score) => {
        if (ranking === this.ranking) [this.mine] = [score];
        this.requestUpdate();
      }, () => undefined);
    }
    this.requestUpdate();
  }

  /** In the mode kiosk, shows one board after another. */
  private turn(): void {
    clearInterval(this.timers[1]);
    if (!this.kiosk || !(this.rotate > 0)) return;
    this.timers[1] = setInterval(() => void this.next(), Math.max(5, this.rotate) * 1000);
  }

  private async next(): Promise<void> {
    if (document.hidden) return;
    this.boards = await this.client.boards().catch(() => this.boards);
    for (let i = 1, at = this.boards.findIndex((b) => b.board_id === this.shown); i <= this.boards.length; i++) {
      const { board_id } = this.boards[(at + i) % this.boards.length]!;
      const entries = await this.client.list({ board: board_id, season: "latest", division: "", method: "competition" }, { limit: 1 }).catch(() => undefined);
      if (!entries?.count) continue;
      if (board_id !== this.shown) this.open(board_id);
      return;
    }
  }

  protected override render(): TemplateResult {
    const { ranking, format } = this, { t } = format.language, problem = ranking?.problem, top = ranking?.top, board = ranking?.board;
    if (problem) return html`<div class="frame problem" part="problem" role="alert"><strong>${t(heads[problem.kind][1], { board: this.shown, season: this.season })}</strong></div>`;
    if (!ranking || !top || !board) return html`<div class="frame" role="status" aria-label=${t("loading")}>${Array.from({ length: 3 }, () => html`<div class="bone"></div>`)}</div>`;
    const steps = this.compact ? 0 : stepsOf(top), rest = top.leaderboard.slice(steps ? 3 : 0);
    return html`<div class="frame">
      <div class="head" part="header"><h2 part="title"><bdi>${board.title || board.board_id}</bdi></h2>${statusBadge(ranking, format)}${this.facts(ranking, board)}</div>
      <div class="body">${steps ? podium(ranking, format, this.link) : nothing}
      ${top.leaderboard.length ? html`<ol class="rows" part="list">${repeat(rest, (e) => e.user_id, (e, i) =>
        this.row(ranking, board, e, [rest[i - 1], rest[i + 1]]))}</ol>` : html`<p class="none">${t("empty")}</p>`}</div>
      ${this.mine?.score !== undefined && !top.leaderboard.some((e) => e.user_id === this.user)
        ? html`<ol class="rows own">${this.row(ranking, board, this.mine as Entry, [])}</ol>` : nothing}
      ${this.kiosk ? nothing : html`<p class="foot" part="footer"><a href=${this.page()} target="_blank" rel="noopener">${t("fullRanking")}</a></p>`}
    </div>`;
  }

  private facts(ranking: Ranking, board: Board): TemplateResult {
    const { format } = this, { t } = format.language, { top, season } = ranking, left = ranking.remaining();
    const facts = [
      board.season?.schedule !== "NONE" && season ? format.season(board, season) : "", top!.division ? format.division(top!.division) : "",
      left === undefined ? "" : `${t(season!.status === "upcoming" ? "beginsIn" : "endsIn")} ${format.remaining(left / 1000)}`,
      this.compact || top!.total === undefined ? "" : `${t("players")}: ${format.number(top!.total)}`, top!.degraded ? t("degraded") : "", top!.filling ? t("filling") : "",
    ];
    return html`<p class="facts" part="facts">${facts.filter(Boolean).map((fact) => html`<span><bdi>${fact}</bdi></span>`)}</p>`;
  }

  private row(ranking: Ranking, board: Board, e: Entry, beside: (Entry | undefined)[]): TemplateResult {
    const decided = ties(board, e, beside, this.format), own = e.user_id === this.user;
    return html`<li class=${own ? "mine" : ""} part=${own ? "row row-mine" : "row"} data-user=${e.user_id}>
      ${rank(e, this.format)}${movement(ranking, e, this.format)}${this.compact ? nothing : avatar(e)}
      <span class="who" part="name">${flag(e.profile, this.format)}${name(e)}${decided ? html`<span class="ties">${decided}</span>` : nothing}</span>
      <span class="score" part="score">${this.format.score(board, e.score)}</span></li>`;
  }

  private page(user = ""): string {
    return `${this.base}/${formatLink({ board: this.shown, season: this.season, division: this.division, method: this.method, user })}`;
  }

  private link = (e: Entry): string => this.page(e.user_id);
}

if (!customElements.get("leader-board")) customElements.define("leader-board", LeaderBoard);
