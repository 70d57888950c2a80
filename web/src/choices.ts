// The menus of boards, seasons, divisions and methods.
import { html, nothing, type TemplateResult } from "lit";
import type { App } from "./app.ts";
import type { Season } from "./api.ts";
import { spaced } from "./format.ts";

const CHIPS = 4; // seasons that are one click away
const OTHER = "other"; // differs from every division, which has a colon
const MORE = "\n"; // no id of a season has a control character

const valueOf = (e: Event): string => (e.target as HTMLSelectElement).value;

export class Choices {
  /** The divisions of users that the page has seen. No call lists all of them. */
  private seen = new Set<string>();
  private seenOf: unknown;
  private typing = false;

  constructor(private readonly app: App) {}

  boardMenu(): TemplateResult | typeof nothing {
    const { app } = this;
    if (app.boards.length < 2) return nothing;
    const known = app.boards.some((b) => b.board_id === app.view.board);
    return html`<label class="select boards"><span class="hidden">${app.t("board")}</span>
      <select id="board" @change=${(e: Event) => app.go({ board: valueOf(e), season: "", division: "" })}>
        ${known ? nothing : html`<option value="" selected>–</option>`}
        ${app.boards.map((b) => html`<option value=${b.board_id} .selected=${b.board_id === app.view.board}>${b.title || b.board_id}</option>`)}</select></label>`;
  }

  render(): TemplateResult | typeof nothing {
    const { board } = this.app.ranking;
    if (!board) return nothing;
    const seasons = this.seasons(), divisions = board.divisions.length ? this.divisions(board.divisions) : nothing;
    return seasons === nothing && divisions === nothing ? nothing : html`<div class="chips">${seasons}${divisions}</div>`;
  }

  private seasons(): TemplateResult | typeof nothing {
    const { app } = this, { ranking } = app, board = ranking.board!, label = (s: Season) => app.format.season(board, s);
    if (board.season?.schedule === "NONE" || !ranking.season) return nothing;
    const open = ranking.seasons.filter((s) => s.id === ranking.current || s.entrants !== 0), shown = open.slice(0, CHIPS), now = ranking.season;
    if (!shown.some((s) => s.id === now.id)) shown.push(now);
    const rest = ranking.seasons.length > shown.length || ranking.moreSeasons;
    return html`<div class="group" role="group" aria-label=${app.t("season")}>
      ${shown.map((s) => html`<button class="chip" aria-pressed=${s.id === now.id} @click=${() => app.go({ season: s.id === ranking.current ? "" : s.id })}><bdi>${label(s)}</bdi></button>`)}
      ${rest ? html`<label class="select"><span class="hidden">${app.t("allSeasons")}</span><select id="season" @change=${(e: Event) => this.chooseSeason(e)}>
        <option value="" .selected=${true} disabled>${app.t("allSeasons")}</option>
        ${ranking.seasons.map((s) => html`<option value=${s.id}>${label(s)}</option>`)}
        ${ranking.moreSeasons ? html`<option value=${MORE}>${app.t("moreSeasons")}</option>` : nothing}</select></label>` : nothing}</div>`;
  }

  private chooseSeason(e: Event): void {
    const season = valueOf(e);
    (e.target as HTMLSelectElement).selectedIndex = 0;
    if (season === MORE) void this.app.ranking.readMoreSeasons();
    else this.app.go({ season });
  }

  private divisions(attributes: string[]): TemplateResult {
    const { app } = this, { t, format } = app, chosen = app.ranking.top?.division || app.view.division;
    const groups = attributes.map((a) => [a, this.valuesOf(a, chosen)] as const);
    return html`<div class="group" role="group" aria-label=${t("division")}>
      <button class="chip" aria-pressed=${!chosen} @click=${() => app.go({ division: "" })}>${t("overall")}</button>
      <label class="select ${chosen ? "on" : ""}"><span class="hidden">${t("division")}</span>
        <select id="division" @focus=${() => this.look()} @pointerenter=${() => this.look()} @change=${(e: Event) => this.chooseDivision(e)}>
          <option value="" .selected=${!chosen} disabled>${t("division")}</option>
          ${groups.map(([a, values]) => (values.length ? html`<optgroup label=${spaced(a).replaceAll("+", " + ")}>${values.map((d) =>
            html`<option value=${d} .selected=${d === chosen}>${format.division(d)}</option>`)}</optgroup>` : nothing))}
          <option value=${OTHER}>${t("otherDivision")}</option></select></label>
      ${this.typing ? html`<form class="inline" @submit=${(e: Event) => this.typed(e)}><label><span class="hidden">${t("divisionHint")}</span>
        <input name="division" required pattern="[^:]+:.+" placeholder=${`${attributes[0]}:…`} title=${t("divisionHint")} autocomplete="off" spellcheck="false"></label>
        <button>${t("show")}</button></form>` : nothing}</div>`;
  }

  private valuesOf(attribute: string, chosen: string): string[] {
    const all = new Set(this.seen);
    if (chosen) all.add(chosen);
    const order = new Intl.Collator(this.app.format.language.locale, { numeric: true });
    return [...all].filter((d) => d.startsWith(attribute + ":")).sort(order.compare);
  }

  private chooseDivision(e: Event): void {
    const division = valueOf(e);
    this.typing = division === OTHER;
    if (this.typing) this.app.requestUpdate();
    else this.app.go({ division });
  }

  private typed(e: Event): void {
    e.preventDefault();
    this.typing = false;
    this.app.go({ division: String(new FormData(e.target as HTMLFormElement).get("division")).trim() });
  }

  /** Reads the divisions of the first users, once for a season. */
  private look(): void {
    const { app } = this, { ranking } = app, of = `${ranking.subject?.board} ${ranking.top?.season}`;
    if (this.seenOf === of || !ranking.top) return;
    this.seenOf = of;
    app.client.list({ ...ranking.subject!, season: ranking.top.season, division: "" }, { limit: 1000, include_metadata: true }).then((answer) => {
      this.seen = new Set(answer.leaderboard.flatMap((e) => e.divisions ?? []));
      app.requestUpdate();
    }, () => { this.seenOf = undefined; });
  }
}
