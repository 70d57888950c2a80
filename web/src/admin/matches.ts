// Matches: search by the beginning of their ids, results, void and restore.
import { html, nothing } from "lit";
import { boardPath } from "../api.ts";
import type { Act, Values } from "./act.ts";
import { to, type Admin, type Section } from "./app.ts";
import { reason, statusText } from "./players.ts";
import { boardSelect, effect, facts, Load, moment, table, theirs, type Effect, type Part } from "./show.ts";
import type { GetMatchResponse, ListMatchesResponse, Match } from "./types.gen.ts";

const PAGE = 100;

export class Matches implements Section {
  private board = "";
  private season = "";
  private prefix = "";
  private match = "";
  private readonly list: Load<ListMatchesResponse>;
  private readonly one: Load<GetMatchResponse>;

  constructor(private readonly app: Admin) {
    [this.list, this.one] = [new Load(app), new Load(app)];
  }

  private get boards() { return this.app.boards.filter((b) => b.matches); }

  open(route: URLSearchParams): void {
    const board = route.get("board") ?? "";
    this.board = this.boards.find((b) => b.board_id === board)?.board_id ?? this.boards[0]?.board_id ?? "";
    [this.season, this.prefix, this.match] = [route.get("season") ?? "", route.get("prefix") ?? "", route.get("match") ?? ""];
    this.one.clear();
    this.list.clear();
    this.reload();
  }

  private reload(): void {
    if (!this.board) return;
    if (this.match) {
      void this.one.read(() => this.app.client.get(`${boardPath(this.board)}/matches/${encodeURIComponent(this.match)}`, { season: this.season, limit: PAGE }));
    } else {
      void this.list.read(() => this.read(""));
    }
  }

  private read = (token: string): Promise<ListMatchesResponse> =>
    this.app.client.get(boardPath(this.board) + "/matches", { season: this.season, prefix: this.prefix, limit: PAGE, page_token: token });

  render(): Part {
    const { app, board } = this, { t } = app;
    if (!board) return html`<h1>${t("matches")}</h1><p class="quiet">${t("noMatchBoards")}</p>`;
    if (this.match) return this.single();
    const submit = (e: Event) => {
      e.preventDefault();
      const v = new FormData(e.target as HTMLFormElement);
      app.go(to("matches", { board: this.board, season: String(v.get("season")).trim(), prefix: String(v.get("prefix")).trim() }));
    };
    return html`<h1>${t("matches")}</h1>
      <form class="filters panel" role="search" @submit=${submit}>
        ${boardSelect(app, "match-board", this.boards, board, (b) => app.go(to("matches", { board: b })))}
        <label class="field"><span>${t("seasonOrEmpty")}</span><input id="match-season" name="season" maxlength="64" autocomplete="off" .value=${this.season}></label>
        <label class="field wide"><span>${t("matchPrefix")}</span><input id="match-prefix" name="prefix" maxlength="128" autocomplete="off" spellcheck="false" dir="auto" .value=${this.prefix}></label>
        <button class="main">${t("find")}</button></form>
      ${this.list.show((v) => html`${v.matches.length ? table(t("matches"), [t("match"), t("season"), t("state"), t("reason"), t("action")], v.matches.map((m) => [
        html`<a href=${to("matches", { board, season: m.season, match: m.match_id })}><bdi>${m.match_id}</bdi></a>`, theirs(m.season), this.state(m), theirs(m.reason), this.button(m)]))
        : html`<p class="quiet">${t("noMatches")}</p>`}
        ${v.next_page_token ? html`<button ?disabled=${this.list.busy} @click=${() => void this.list.read(async () => {
          const next = await this.read(v.next_page_token);
          return { ...next, matches: [...v.matches, ...next.matches] };
        })}>${t("showMore")}</button>` : nothing}`)}`;
  }

  private state = (m: Match): Part => html`<span class="badge ${m.voided ? "bad" : ""}">${this.app.t(m.voided ? "voided" : "counts")}</span>`;
  private button = (m: Match): Part => html`<button class="void" @click=${() => this.app.acts.open(this.act(m))}>${this.app.t(m.voided ? "restore" : "void")}</button>`;

  private single(): Part {
    const { app, board } = this, { t } = app;
    return html`<p><a href=${to("matches", { board, season: this.season })}>${t("matches")}</a></p><h1><bdi>${this.match}</bdi></h1>
      ${this.one.show(({ match, results, next_page_token }) => html`${match ? html`${facts([[t("board"), theirs(match.board)], [t("season"), theirs(match.season)], [t("state"), this.state(match)],
        [t("reason"), theirs(match.reason)], [t("updated"), moment(app, match.changed_at)]])}<div class="buttons start">${this.button(match)}</div>` : nothing}
      <h2>${t("results")}</h2>${results.length ? table(t("results"), [t("player"), t("score"), t("state"), t("time")], results.map((r) => [
        html`<a href=${to("players", { user: r.user_id, board })}><bdi>${r.user_id}</bdi></a>`,
        r.result ? app.score(board, r.result.score ?? r.result.points ?? 0) : "–", t(statusText[r.status]), moment(app, r.result?.achieved_at)])) : html`<p class="quiet">${t("noResults")}</p>`}
      ${next_page_token ? html`<p class="quiet">${t("onlySome", { n: results.length })}</p>` : nothing}`)}`;
  }

  private act(m: Match): Act {
    const { app } = this, verb = m.voided ? "restore" : "void", path = `${boardPath(m.board)}/matches/${encodeURIComponent(m.match_id)}:${verb}`;
    const body = (v: Values) => ({ season: m.season, reason: v.reason });
    return {
      title: verb, verb, subject: m.match_id, fields: [reason], records: () => ({ board: m.board, action: "match" }), done: () => this.reload(),
      preview: async (v) => effect(app, (await app.client.send<{ effect: Effect }>("POST", path, { ...body(v), dry_run: true })).value.effect),
      run: (v) => app.client.send("POST", path, body(v)),
    };
  }
}
