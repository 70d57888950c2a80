// Search for a player, and jumps to a rank or percentage.
import { html, nothing, type TemplateResult } from "lit";
import { closeOnBackdrop, type App } from "./app.ts";
import { nameOf } from "./api.ts";
import { avatar, name, rank } from "./parts.ts";

const SUGGESTIONS = 6;

/** Reads "5,000" or "10 %", with the digits of any language; a percentage is of total. Returns 0 for anything else. */
export function positionOf(text: string, total: number): number {
  const ascii = text.normalize("NFKC").replace(/[0-9\u0660-\u0669\u06f0-\u06f9]/g, (d) => String(d.charCodeAt(0) & 15));
  const percent = /^\s*(\d+(?:[.,\u066b]\d+)?)\s*[%\u066a]\s*$/.exec(ascii);
  if (percent) return Math.min(Math.max(1, Math.ceil((total * Number(percent[1]!.replace(/[,\u066b]/, "."))) / 100)), total);
  const digits = ascii.replace(/[\s.,'’\u066c#]/g, "");
  return /^\d{1,15}$/.test(digits) ? Number(digits) : 0;
}

export class Finder {
  private text = "";
  private wrong = "";

  constructor(private readonly app: App) {}

  private get element(): HTMLDialogElement { return this.app.renderRoot.querySelector<HTMLDialogElement>("dialog.finder")!; }

  /** The key / opens the search, as in other pages. */
  shortcut(e: KeyboardEvent): void {
    const typing = e.composedPath().some((n) => n instanceof HTMLElement && n.matches("input, select, textarea, dialog"));
    if (e.key !== "/" || typing || e.ctrlKey || e.metaKey || e.altKey || !this.app.ranking.top) return;
    e.preventDefault();
    this.open();
  }

  private open = (): void => {
    this.text = this.wrong = "";
    this.app.requestUpdate();
    this.element.showModal();
  };

  button(): TemplateResult {
    return html`<button class="find" @click=${this.open} aria-keyshortcuts="/"><span aria-hidden="true" class="glass"></span><span class="label">${this.app.t("find")}</span><kbd
      aria-hidden="true">/</kbd></button>`;
  }

  dialog(): TemplateResult {
    const { t } = this.app;
    return html`<dialog class="finder" aria-label=${t("find")} @click=${closeOnBackdrop}><div>
      <form role="search" @submit=${(e: Event) => { e.preventDefault(); this.show(this.text); }}>
        <label for="user">${t("playerId")}</label>
        <div class="line"><input id="user" .value=${this.text} autocomplete="off" autocapitalize="off" spellcheck="false" required maxlength="128"
          @input=${(e: Event) => { this.text = (e.target as HTMLInputElement).value; this.wrong = ""; this.app.requestUpdate(); }}><button class="main">${t("show")}</button></div>
      </form>
      ${this.suggestions()}
      <form @submit=${(e: Event) => this.jump(e)}>
        <label for="rank">${t("rankOrPercent")}</label>
        <div class="line"><input id="rank" name="rank" required inputmode="text" autocomplete="off" placeholder=${this.example()}><button>${t("goTo")}</button></div>
        ${this.wrong ? html`<p class="wrong" role="alert">${this.wrong}</p>` : nothing}
      </form>
      <button class="plain" @click=${() => this.element.close()}>${t("close")}</button></div></dialog>`;
  }

  private example(): string {
    const { format, ranking } = this.app;
    return `${format.number(Math.max(1, Math.round(ranking.total / 2)))} · ${format.percent(10)}`;
  }

  /** The players of the top whose name or id begins with the text. */
  private suggestions(): TemplateResult | typeof nothing {
    const { app } = this, wanted = this.text.trim().toLowerCase();
    if (!wanted) return nothing;
    const found = (app.ranking.top?.leaderboard ?? []).filter((e) => [e.user_id, nameOf(e)].some((s) => s.toLowerCase().startsWith(wanted))).slice(0, SUGGESTIONS);
    return found.length ? html`<ul class="small">${found.map((e) => html`<li><a href=${app.link(e)} @click=${() => this.element.close()}>${rank(e, app.format)}${avatar(e)}
      <span class="who">${name(e)}</span></a></li>`)}</ul>` : nothing;
  }

  private show(user: string): void {
    this.element.close();
    this.app.go({ user });
  }

  private jump(e: Event): void {
    e.preventDefault();
    const { ranking, t } = this.app, text = String(new FormData(e.target as HTMLFormElement).get("rank")), position = positionOf(text, ranking.total);
    if (position < 1 || position > ranking.total) {
      this.wrong = t("noSuchRank", { n: ranking.total });
      return this.app.requestUpdate();
    }
    this.element.close();
    this.app.go({ rank: position });
  }
}
