// The audit log: who did what and why, with the state before and after.
import { html, nothing } from "lit";
import type { Query } from "../api.ts";
import { instant } from "./act.ts";
import { to, type Admin, type Section } from "./app.ts";
import { Load, outcomes, record, type Part } from "./show.ts";
import type { ListActsResponse } from "./types.gen.ts";

const actions = ["board", "board.create", "board.update", "board.delete", "season", "season.end", "season.seal", "season.delete", "ban", "unban", "ban.import", "user.erase", "profile", "result",
  "result.correct", "result.retract", "match", "match.void", "match.restore", "key", "key.create", "key.revoke", "dead_letter.replay", "verify.repair", "rebuild", "backup"];
const filters = ["action", "board", "user_id", "actor", "since", "before"] as const;
const PAGE = 100;

export class Audit implements Section {
  private query: Record<string, string> = {};
  private readonly acts: Load<ListActsResponse>;

  constructor(private readonly app: Admin) {
    this.acts = new Load(app);
  }

  open(route: URLSearchParams): void {
    this.query = Object.fromEntries(filters.map((name) => [name, route.get(name) ?? ""]));
    if (this.app.limited && !this.query.board) this.query.board = this.app.boards[0]?.board_id ?? "";
    this.acts.clear();
    void this.acts.read(() => this.read(""));
  }

  private read(token: string): Promise<ListActsResponse> {
    const query: Query = { ...this.query, since: instant(this.query.since), before: instant(this.query.before), limit: PAGE, page_token: token };
    return this.app.client.get("/v1/audit", query);
  }

  render(): Part {
    const { app, query } = this, { t } = app;
    const submit = (e: Event) => {
      e.preventDefault();
      app.go(to("audit", Object.fromEntries([...new FormData(e.target as HTMLFormElement)].map(([name, value]) => [name, String(value).trim()]))));
    };
    return html`<h1>${t("audit")}</h1>
      <form class="filters panel" role="search" @submit=${submit}>
        <label class="field"><span>${t("action")}</span><select id="audit-action" name="action"><option value="">${t("everyAction")}</option>${actions.map((a) =>
          html`<option value=${a} .selected=${a === query.action}>${a}</option>`)}</select></label>
        <label class="field"><span>${t("board")}</span><select id="audit-board" name="board">${app.limited ? nothing : html`<option value="">${t("everyBoard")}</option>`}${app.boards.map((b) =>
          html`<option value=${b.board_id} .selected=${b.board_id === query.board}>${b.title || b.board_id}</option>`)}</select></label>
        <label class="field"><span>${t("player")}</span><input id="audit-user" name="user_id" maxlength="128" autocomplete="off" dir="auto" .value=${query.user_id ?? ""}></label>
        <label class="field"><span>${t("actor")}</span><input id="audit-actor" name="actor" autocomplete="off" dir="auto" .value=${query.actor ?? ""}></label>
        <label class="field"><span>${t("since")}</span><input id="audit-since" name="since" type="datetime-local" .value=${query.since ?? ""}></label>
        <label class="field"><span>${t("until")}</span><input id="audit-before" name="before" type="datetime-local" .value=${query.before ?? ""}></label>
        <button class="main">${t("filter")}</button></form>
      ${this.acts.show((v) => {
        const list = outcomes(v.acts);
        return html`${list.length ? html`<ol class="timeline">${list.map((a) => html`<li>${record(app, a)}</li>`)}</ol>` : html`<p class="quiet">${t("noActs")}</p>`}
          ${v.next_page_token ? html`<button ?disabled=${this.acts.busy} @click=${() => void this.acts.read(async () => {
            const next = await this.read(v.next_page_token);
            return { ...next, acts: [...v.acts, ...next.acts] };
          })}>${t("showMore")}</button>` : nothing}`;
      })}`;
  }
}
