// The endless list: of a ranking's rows, only those in the window exist.
import { html, LitElement, nothing, type TemplateResult } from "lit";
import { repeat } from "lit/directives/repeat.js";
import type { Client, Entry } from "./api.ts";
import type { Format } from "./format.ts";
import { avatar, flag, movement, name, rank, ties } from "./parts.ts";
import type { Ranking } from "./ranking.ts";
import { Virtual } from "./virtual.ts";

/** The entries of a page, and of the top that the ranking follows. */
export const PAGE = 100;
const FRESH_MS = 5_000; // pages below the top are read again at most this often
const MAX_PAGES = 30;
const MOVE_MS = 400;

interface Page { entries: Entry[]; changes: number; readAt: number; reading: boolean }

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class List extends LitElement {
  static override properties = { changes: {}, me: {}, format: {}, from: {} };
  declare ranking: Ranking;
  declare client: Client;
  declare format: Format;
  declare me: string;
  /** The changes of the ranking that the list shows. */
  declare changes: number;
  /** The number of entries above the list, on the podium. */
  declare from: number;
  declare link: (e: Entry) => string;

  private virtual = new Virtual(0, 1);
  private pages = new Map<number, Page>();
  private subject: unknown;
  private season = "";
  private places = new Map<string, number>();
  private marked = 0;
  private shown = 0;

  protected override createRenderRoot(): HTMLElement { return this; }

  override connectedCallback(): void {
    super.connectedCallback();
    addEventListener("scroll", this.scrolled, { passive: true });
    addEventListener("resize", this.resized);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    removeEventListener("scroll", this.scrolled);
    removeEventListener("resize", this.resized);
  }

  private resized = () => { this.requestUpdate(); };

  private get top(): number { return this.getBoundingClientRect().top + scrollY; }

  private scrolled = () => {
    const before = scrollY - this.top, after = this.virtual.scroll(before, innerHeight);
    if (after !== before) scrollTo({ top: this.top + after, behavior: "instant" });
    this.requestUpdate();
  };

  /** Shows the entry at a position, from 1. */
  jump(position: number): void {
    const index = Math.min(Math.max(position, 1), this.ranking.rows) - 1 - this.from;
    const top = this.virtual.jump(Math.max(0, index * this.virtual.row - innerHeight / 3), innerHeight);
    this.marked = position;
    scrollTo({ top: index < 0 ? 0 : this.top + top, behavior: "instant" });
    this.requestUpdate();
  }

  protected override willUpdate(): void {
    const { ranking } = this, row = 3.75 * parseFloat(getComputedStyle(document.documentElement).fontSize);
    if (this.subject !== ranking.subject || this.season !== ranking.top?.season) {
      this.pages.clear();
      this.places.clear();
      this.marked = 0;
      this.subject = ranking.subject;
      this.season = ranking.top?.season ?? "";
      this.virtual = new Virtual(0, row);
    }
    const rows = Math.max(0, ranking.rows - this.from);
    if (this.virtual.row !== row) this.virtual = new Virtual(rows, row);
    this.virtual.rows = rows;
  }

  protected override render(): TemplateResult {
    const { first, end } = this.virtual.visible(Math.max(0, scrollY - (this.isConnected ? this.top : 0)), innerHeight);
    const indexes = Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i + this.from);
    this.read(indexes);
    return html`<div class="rows" role="list" .style=${`height:${this.virtual.height}px`}>${repeat(indexes,
      (i) => this.entry(i)?.user_id ?? i, (i) => this.row(i))}</div>`;
  }

  private entry(index: number): Entry | undefined {
    const { top } = this.ranking;
    return index < (top?.leaderboard.length ?? 0) ? top!.leaderboard[index] : this.pages.get(Math.floor(index / PAGE))?.entries[index % PAGE];
  }

  private row(index: number): TemplateResult {
    const e = this.entry(index), { ranking, format } = this, board = ranking.board!;
    const style = `transform:translateY(${this.virtual.offset(index - this.from)}px)`;
    if (!e) return html`<div class="row waiting" role="listitem" .style=${style} data-index=${index}><span class="bone"></span></div>`;
    const best = ranking.top!.leaderboard[0]?.score ?? 0;
    const share = board.order === "LOWER_FIRST" ? best / e.score : e.score / best, decided = ties(board, e, [this.entry(index - 1), this.entry(index + 1)], format);
    return html`<div class="row ${e.user_id === this.me ? "mine" : ""} ${index + 1 === this.marked ? "marked" : ""}" role="listitem"
      aria-setsize=${ranking.rows} aria-posinset=${index + 1} .style=${style} data-index=${index} data-user=${e.user_id}>
      <a href=${this.link(e)} .style=${`--share:${share > 0 && share <= 1 ? share : 0}`}>
        ${rank(e, format)}${movement(ranking, e, format)}${avatar(e)}
        <span class="who">${flag(e.profile, format)}${name(e)}${decided ? html`<span class="ties">${decided}</span>` : nothing}</span>
        <span class="score">${format.score(board, e.score)}</span>
      </a></div>`;
  }

  /** Reads the pages of the rows in the window that are missing or old. */
  private read(indexes: number[]): void {
    const { ranking } = this, live = ranking.top?.leaderboard.length ?? 0;
    if (!ranking.top || ranking.top.degraded) return;
    for (const k of new Set(indexes.filter((i) => i >= live).map((i) => Math.floor(i / PAGE)))) {
      const page = this.pages.get(k) ?? { entries: [], changes: -1, readAt: 0, reading: false };
      if (page.reading || page.changes === ranking.changes || Date.now() - page.readAt < FRESH_MS) continue;
      page.reading = true;
      this.pages.set(k, page);
      void this.readPage(k, page);
    }
    for (const k of this.pages.keys()) if (this.pages.size > MAX_PAGES && !indexes.includes(k * PAGE)) this.pages.delete(k);
  }

  private async readPage(k: number, page: Page): Promise<void> {
    const { ranking } = this, { changes, subject } = ranking;
    try {
      const answer = await this.client.list({ ...subject!, season: ranking.top!.season }, { start_rank: k * PAGE + 1, limit: PAGE });
      Object.assign(page, { entries: answer.leaderboard, changes });
    } catch { /* the next change or scroll reads it again */ }
    Object.assign(page, { readAt: Date.now(), reading: false });
    if (this.pages.get(k) === page) this.requestUpdate();
  }

  /** Slides the rows that a change moved, from their old places. */
  protected override updated(): void {
    const slide = this.shown !== this.ranking.changes && !still.matches;
    this.shown = this.ranking.changes;
    const places = new Map<string, number>();
    for (const element of this.querySelectorAll<HTMLElement>(".row[data-user]")) {
      const index = Number(element.dataset.index), was = this.places.get(element.dataset.user!);
      places.set(element.dataset.user!, index);
      if (!slide || was === undefined || was === index) continue;
      const y = this.virtual.offset(index - this.from), from = this.virtual.offset(was - this.from);
      element.style.zIndex = was > index ? "2" : "1"; // who rises passes above
      element.animate([{ transform: `translateY(${from}px)` }, { transform: `translateY(${y}px)` }], { duration: MOVE_MS, easing: "cubic-bezier(.2,.8,.2,1)" })
        .onfinish = () => { element.style.zIndex = ""; };
    }
    this.places = places;
  }
}

customElements.define("lb-list", List);
