// The page for administrators: the key, the sections, and the section that the address names.
import { html, LitElement, nothing, unsafeCSS, type TemplateResult } from "lit";
import type english from "../../text/admin/en.json";
import { Problem, toProblem, type Board } from "../api.ts";
import appStyle from "../app.css";
import { Format } from "../format.ts";
import partsStyle from "../parts.css";
import { settings } from "../settings.ts";
import { languages, type Key, type Language } from "../text.ts";
import themeStyle from "../theme.css";
import { ActDialog } from "./act.ts";
import adminStyle from "./admin.css";
import { Audit } from "./audit.ts";
import { Boards } from "./boards.ts";
import { Calls } from "./calls.ts";
import { DeadLetters } from "./deadletters.ts";
import { Health } from "./health.ts";
import { Keys } from "./keys.ts";
import { Matches } from "./matches.ts";
import { Players } from "./players.ts";
import { trouble, type Part } from "./show.ts";
import type { ListActsResponse } from "./types.gen.ts";

export type AdminKey = Key | keyof typeof english;

/** A section of the page. */
export interface Section {
  /** Reads what the address names. */
  open(route: URLSearchParams): void;
  render(): Part;
}

const sections = ["players", "matches", "boards", "dead-letters", "keys", "audit", "health"] as const;
type Name = (typeof sections)[number];
const titles: Record<Name, AdminKey> = { players: "players", matches: "matches", boards: "boards", "dead-letters": "deadLetters", keys: "keys", audit: "audit", health: "health" };
const themes: readonly (readonly [string, AdminKey])[] = [["auto", "themeAuto"], ["light", "themeLight"], ["dark", "themeDark"]];

/** An address within the page. The key is never in one. */
export const to = (at: Name, values: Record<string, string | undefined> = {}): string =>
  "#" + new URLSearchParams({ at, ...Object.fromEntries(Object.entries(values).filter((e): e is [string, string] => Boolean(e[1]))) });

export class Admin extends LitElement {
  static language: Language<AdminKey>;
  static override styles = [themeStyle, partsStyle, appStyle, adminStyle].map((text) => unsafeCSS(text));

  readonly format = new Format(Admin.language);
  readonly client = new Calls("", settings.key);
  readonly acts = new ActDialog(this);
  private readonly sections: Record<Name, Section> = {
    players: new Players(this), matches: new Matches(this), boards: new Boards(this), "dead-letters": new DeadLetters(this), keys: new Keys(this), audit: new Audit(this), health: new Health(this),
  };
  boards: Board[] = [];
  route = new URLSearchParams();
  /** True if the key is for some boards only. */
  limited = false;
  private state: "checking" | "closed" | "open" = "checking";
  private problem: Problem | undefined;

  get t() { return Admin.language.t; }
  private get at(): Name { return sections.find((s) => s === this.route.get("at")) ?? "players"; }

  override connectedCallback(): void {
    super.connectedCallback();
    addEventListener("popstate", () => this.follow()); // also after a change of the fragment
    for (const name of ["online", "offline"]) addEventListener(name, () => this.requestUpdate());
    void this.start();
  }

  /** Reads the boards, and whether the key may administer them. */
  private async start(): Promise<void> {
    [this.state, this.problem] = ["checking", undefined];
    this.requestUpdate();
    try {
      await this.readBoards();
      this.limited = false;
      await this.client.get<ListActsResponse>("/v1/audit", { limit: 1 }).catch(async (error: unknown) => {
        if (toProblem(error).reason !== "BOARD_DENIED") throw error;
        this.limited = true; // such a key must name a board
        if (this.boards.length) await this.client.get<ListActsResponse>("/v1/audit", { limit: 1, board: this.boards[0]!.board_id });
      });
      this.state = "open";
      this.follow();
    } catch (error) {
      [this.state, this.problem] = ["closed", toProblem(error)];
    }
    this.requestUpdate();
  }

  async readBoards(): Promise<void> {
    this.boards = await this.client.boards();
    this.requestUpdate();
  }

  /** Closes the page if a problem means that the key no longer works. */
  noticed(problem: Problem): Problem {
    if (problem.kind === "key") [this.state, this.problem] = ["closed", problem];
    return problem;
  }

  private follow(): void {
    this.route = new URLSearchParams(location.hash.slice(1));
    if (this.state !== "open") return;
    this.acts.close();
    this.sections[this.at].open(this.route);
    document.title = `${this.t(titles[this.at])} – ${this.t("administration")}`;
    this.requestUpdate();
  }

  go(address: string): void {
    history.pushState(null, "", address);
    this.follow();
  }

  private useKey(key: string): void {
    settings.key = this.client.key = key;
    this.acts.close();
    this.boards = [];
    void this.start();
  }

  board = (id: string): Board | undefined => this.boards.find((b) => b.board_id === id);
  score = (board: string, value: number): string => {
    const known = this.board(board);
    return known ? this.format.scoreWithUnit(known, value) : this.format.number(value);
  };

  protected override render(): TemplateResult {
    const { t } = this;
    return html`<div class="page">
      <header class="bar">
        <a class="skip" href="#main" @click=${(e: Event) => { e.preventDefault(); this.renderRoot.querySelector<HTMLElement>("main")!.focus(); }}>${t("skipToContent")}</a>
        <strong class="admin-title">${t("administration")}</strong><span class="space"></span>
        ${this.client.key ? html`<button id="forget" @click=${() => this.useKey("")}>${t("forgetKey")}</button>` : nothing}
      </header>
      ${this.state === "open" ? this.navigation() : nothing}
      <main tabindex="-1">${navigator.onLine ? nothing : html`<p class="notice" role="status">${t("youAreOffline")}</p>`}${this.state === "open" ? this.notice() : nothing}${this.state === "open" ? this.sections[this.at].render() : this.state === "closed" ? this.closed() : html`<p class="bone wait" role="status">${t("loading")}</p>`}</main>
      ${this.footer()}${this.acts.render()}</div>`;
  }

  private navigation(): TemplateResult {
    return html`<nav class="tabs" aria-label=${this.t("sections")}>${sections.map((s) =>
      html`<a class="button" href=${to(s)} aria-current=${s === this.at ? "page" : nothing}>${this.t(titles[s])}</a>`)}</nav>`;
  }

  private notice(): Part {
    return this.limited ? html`<p class="notice">${this.t("limitedKey")}</p>` : this.client.key ? nothing : html`<p class="notice">${this.t("needsNoKey")}</p>`;
  }

  /** What the page shows without a key that may administer. */
  private closed(): TemplateResult {
    const { t, problem, client } = this, kind = problem?.kind, asks = kind === "key" || kind === "forbidden";
    if (!asks) return html`<div class="panel problem">${trouble(this, problem!, false, () => void this.start())}</div>`;
    const [title, text]: [AdminKey, AdminKey] = kind === "forbidden" && client.key ? ["notAdminTitle", "notAdminText"] : ["adminKeyTitle", "adminKeyText"];
    const use = (e: Event) => {
      e.preventDefault();
      this.useKey(String(new FormData(e.target as HTMLFormElement).get("key")).trim());
    };
    return html`<div class="panel problem" data-problem=${kind}><h1>${t(title)}</h1><p>${t(text)}</p>
      <form @submit=${use}><label for="key">${t("keyLabel")}</label>
        <div class="line"><input id="key" name="key" type="password" autocomplete="off" required aria-describedby="refused"><button class="main">${t("useKey")}</button></div>
        <p id="refused" class="wrong" role="alert">${client.key && kind === "key" ? t("keyRefused") : nothing}</p></form>
      <a href="/">${t("toTheRanking")}</a></div>`;
  }

  private footer(): TemplateResult {
    const { t } = this, choice = (id: string, label: string, options: readonly (readonly [string, string])[], chosen: string, choose: (value: string) => void) =>
      html`<label>${label} <select id=${id} @change=${(e: Event) => choose((e.target as HTMLSelectElement).value)}>${options.map(([value, text]) =>
        html`<option value=${value} .selected=${value === chosen}>${text}</option>`)}</select></label>`;
    return html`<footer>
      ${choice("language", t("language"), Object.entries(languages), this.format.language.language, (locale) => { settings.locale = locale; location.reload(); })}
      ${choice("theme", t("theme"), themes.map(([theme, key]) => [theme, t(key)] as const), settings.theme || "auto", (theme) => {
        settings.theme = document.documentElement.dataset.theme = theme;
        this.requestUpdate();
      })}
      <a href="/">${t("toTheRanking")}</a> <a href="/docs">${t("apiDocs")}</a></footer>`;
  }
}
