// The page: it follows the address, and shows the ranking that the address names.
import { html, LitElement, nothing, unsafeCSS, type TemplateResult } from "lit";
import { Client, Problem, toProblem, type Board, type Entry } from "./api.ts";
import appStyle from "./app.css";
import { aside } from "./aside.ts";
import "./card.ts";
import { Choices } from "./choices.ts";
import { Finder } from "./finder.ts";
import { Format } from "./format.ts";
import { formatLink, parseLink, type View } from "./link.ts";
import { PAGE, type List } from "./list.ts";
import { Me } from "./me.ts";
import { menu } from "./menu.ts";
import { nameOf } from "./api.ts";
import { podium, statusBadge, stepsOf } from "./parts.ts";
import partsStyle from "./parts.css";
import { problemPanel } from "./panel.ts";
import { Ranking } from "./ranking.ts";
import { settings, userOfToken } from "./settings.ts";
import { Overview } from "./overview.ts";
import { Language } from "./text.ts";
import themeStyle from "./theme.css";

const wide = matchMedia("(min-width: 72rem)");
const BOARDS_AGAIN_MS = 3_000;

export class App extends LitElement {
  static language: Language;
  static override styles = [themeStyle, partsStyle, appStyle].map((text) => unsafeCSS(text));

  readonly format = new Format(App.language);
  readonly client = new Client("", settings.key);
  readonly ranking: Ranking = new Ranking(this.client, PAGE, () => this.rankingChanged());
  readonly choices = new Choices(this);
  readonly finder = new Finder(this);
  readonly mine = new Me(this);
  readonly overview = new Overview(this);
  view: View = parseLink(location.hash);
  boards: Board[] = [];
  problem: Problem | undefined;
  /** True after the server refused the key that the reader gave. */
  refused = false;
  private home = "";
  private leader = "";
  private news = "";

  get t() { return this.format.language.t; }
  /** The reader's own user: of the token, or as chosen. */
  get me(): string { return userOfToken(this.client.key) || settings.me; }
  get list(): List | null { return this.renderRoot.querySelector<List>("lb-list"); }

  override connectedCallback(): void {
    super.connectedCallback();
    addEventListener("popstate", () => this.follow()); // also after a change of the fragment
    addEventListener("online", () => this.restart());
    addEventListener("offline", () => this.requestUpdate());
    addEventListener("keydown", (e) => this.finder.shortcut(e));
    wide.addEventListener("change", () => this.requestUpdate());
    setInterval(() => this.requestUpdate(), 1000); // the countdown
    this.addEventListener("close-card", () => this.closeCard());
    this.addEventListener("choose-me", (e) => this.chooseMe((e as CustomEvent<string>).detail));
    void this.start();
  }

  /** Reads the boards, and shows the one that the address names. */
  async start(): Promise<void> {
    try {
      this.boards = await this.client.boards();
      this.home = "";
      this.problem = this.boards.length ? undefined : new Problem(this.client.key ? "forbidden" : "key", "", "");
      this.follow();
    } catch (error) {
      this.problem = toProblem(error);
      this.refused = ["key", "forbidden"].includes(this.problem.kind) && this.client.key !== "";
      if (!["key", "forbidden"].includes(this.problem.kind)) setTimeout(() => this.start(), BOARDS_AGAIN_MS);
    }
    this.requestUpdate();
  }

  restart(): void {
    if (this.problem || !this.boards.length) void this.start();
    else if (this.ranking.connection !== "live") this.open();
  }

  useKey(key: string): void {
    settings.key = this.client.key = key;
    this.boards = [];
    this.problem = undefined;
    this.ranking.close();
    void this.start();
  }

  chooseMe(user: string): void {
    settings.me = user;
    this.requestUpdate();
  }

  boardTitle = (id: string): string => this.boards.find((b) => b.board_id === id)?.title || id;

  /** Shows what the address names. */
  follow(): void {
    const before = this.view;
    this.view = parseLink(location.hash);
    if (!this.boards.length) return;
    if (!this.view.board && !this.home) return void this.findHome().then(() => this.follow());
    if (!this.view.board) this.view.board = this.home;
    const same = (["board", "season", "division", "method"] as const).every((k) => before[k] === this.view[k]);
    if (!same || !this.ranking.subject) this.open();
    else if (this.view.rank && this.view.rank !== before.rank) void this.list?.jump(this.view.rank);
    this.requestUpdate();
  }

  /** Finds the board for an address without one: the default board or, if it has no entries, the first other one. */
  private async findHome(): Promise<void> {
    const others = this.boards.filter((b) => b.board_id !== "default"), standard = { board: "default", season: "", division: "", method: "competition" } as const;
    const first = others.length && others.length < this.boards.length ? await this.client.list(standard, { limit: 1 }).catch(() => undefined) : undefined;
    this.home = others.length === this.boards.length || first?.count === 0 ? others[0]!.board_id : "default";
  }

  private open(): void {
    const { board, season, division, method } = this.view;
    this.leader = this.news = "";
    this.ranking.open({ board, season, division, method });
    scrollTo({ top: 0, behavior: "instant" });
  }

  /** Goes to another view, so that Back returns to this one. */
  go(change: Partial<View>): void {
    history.pushState({ inPage: true }, "", formatLink({ ...this.view, user: "", rank: 0, ...change }));
    this.follow();
  }

  private closeCard(): void {
    if ((history.state as { inPage?: boolean } | null)?.inPage) history.back();
    else this.go({});
  }

  link = (e: Entry): string => formatLink({ ...this.view, rank: 0, user: e.user_id });

  /** Keeps clicks on links within the page, so that closing a card can go back. */
  private clicked = (event: MouseEvent): void => {
    const anchor = event.composedPath().find((n): n is HTMLAnchorElement => n instanceof HTMLAnchorElement);
    if (!anchor?.href.includes("#") || anchor.pathname !== location.pathname || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.pushState({ inPage: true }, "", anchor.hash || "#");
    this.follow();
  };

  private rankingChanged(): void {
    const { ranking } = this, first = ranking.top?.leaderboard[0];
    if (first && first.user_id !== this.leader && ranking.board) {
      if (this.leader) this.news = this.t("leads", { user: nameOf(first), score: this.format.scoreWithUnit(ranking.board, first.score) });
      this.leader = first.user_id;
    }
    if (ranking.top) this.mine.update();
    this.overview.update();
    this.requestUpdate();
  }

  protected override updated(): void {
    const { board } = this.ranking, card = this.renderRoot.querySelector<HTMLDialogElement>("dialog.card");
    document.title = board ? board.title || board.board_id : this.t("leaderboard");
    if (card && !card.open) card.showModal();
    if (this.view.rank && this.ranking.changes && this.list && this.jumped !== this.view) {
      this.jumped = this.view;
      const { rank } = this.view;
      void this.list.updateComplete.then(() => this.list?.jump(rank));
    }
  }

  private jumped: View | undefined;

  protected override render(): TemplateResult {
    const { ranking, t } = this, problem = this.problem ?? ranking.problem, isWide = wide.matches;
    return html`<div class="page" @click=${this.clicked}>
      <header class="bar">
        <a class="skip" href="#main" @click=${(e: Event) => { e.preventDefault(); this.renderRoot.querySelector<HTMLElement>("main")!.focus(); }}>${t("skip")}</a>
        <a class="brand" href="#" aria-label=${t("leaderboard")}>${logo}</a>
        ${this.choices.boardMenu()}
        ${ranking.top && !problem ? statusBadge(ranking, this.format) : nothing}
        <span class="space"></span>
        ${ranking.top && !problem ? this.finder.button() : nothing}
        <button class="plain icon" popovertarget="menu" aria-label=${t("menu")}>⋯</button>
      </header>
      ${menu(this)}
      <main tabindex="-1">${problem ? problemPanel(this, problem) : html`
        ${this.overview.render()}${this.choices.render()}${this.overview.notices()}
        <div class="columns"><section class="ranking" aria-label=${t("ranking")}>
          ${isWide ? nothing : this.overview.details(() => aside(this))}
          ${ranking.top ? this.rankingBody() : html`<div class="loading" aria-label=${t("loading")} role="status">${Array.from({ length: 8 }, () =>
            html`<div class="row waiting"><span class="bone"></span></div>`)}</div>`}
        </section>${isWide && ranking.top ? html`<aside>${aside(this)}</aside>` : nothing}</div>
        ${this.mine.render()}`}
      </main>
      <p class="hidden" aria-live="polite">${this.news}</p>
      ${this.finder.dialog()}
      ${this.view.user && ranking.board && !problem ? html`<dialog class="card" aria-labelledby="card-title" @close=${() => { if (this.view.user) this.closeCard(); }}
        @click=${closeOnBackdrop}><lb-card .ranking=${ranking} .client=${this.client} .format=${this.format} .user=${this.view.user} .me=${this.me}
        .changes=${ranking.changes} .boardTitle=${this.boardTitle}></lb-card></dialog>` : nothing}
    </div>`;
  }

  private rankingBody(): TemplateResult {
    const { ranking, t } = this, top = ranking.top!;
    if (!top.leaderboard.length) {
      const upcoming = ranking.status === "upcoming";
      return html`<div class="panel empty"><p class="big" aria-hidden="true">${upcoming ? "⏳" : "🏁"}</p><h2>${t(upcoming ? "notBegun" : "empty")}</h2>
        <p>${upcoming && ranking.season?.start ? t("beginsAt", { at: this.format.moment(ranking.season.start) }) : t(ranking.status === "live" ? "emptyLive" : "emptyEnded")}</p></div>`;
    }
    const steps = stepsOf(top);
    return html`${steps ? podium(ranking, this.format, this.link) : nothing}
      <lb-list .ranking=${ranking} .client=${this.client} .format=${this.format} .me=${this.me} .changes=${ranking.changes} .from=${steps} .link=${this.link}></lb-list>`;
  }
}

/** A click beside a dialog closes it. */
export const closeOnBackdrop = (e: Event): void => { if (e.target === e.currentTarget) (e.currentTarget as HTMLDialogElement).close(); };

const logo = html`<svg viewBox="0 0 16 16" width="28" height="28" aria-hidden="true"><rect x="1" y="8" width="4" height="7" rx="1"/><rect x="6" y="2" width="4" height="13" rx="1"/><rect
  x="11" y="5.5" width="4" height="9.5" rx="1"/></svg>`;
