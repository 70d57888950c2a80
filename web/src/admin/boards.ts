// Boards: create from a template, edit with the difference before, seasons with ends, seals and amendments.
import { html, nothing } from "lit";
import { boardPath, Problem, type Board, type Season, type Seasons } from "../api.ts";
import { instant, type Act, type Field, type Values } from "./act.ts";
import { to, type Admin, type AdminKey, type Section } from "./app.ts";
import { reason } from "./players.ts";
import { difference, facts, flatten, Load, moment, table, theirs, type Part } from "./show.ts";
import type { BoardEffect, EndSeasonResponse } from "./types.gen.ts";

type Rules = Record<string, unknown>;

/** Rules for common rankings. The form that creates a board begins with them. */
const templates: readonly (readonly [name: AdminKey, rules: Rules])[] = [
  ["templateHigh", { policy: "BEST", order: "HIGHER_FIRST", unit: "points", season: { schedule: "NONE" } }],
  ["templateRace", { policy: "BEST", order: "LOWER_FIRST", unit: "ms", season: { schedule: "NONE" } }],
  ["templateWeek", { policy: "SUM", order: "HIGHER_FIRST", unit: "points", matches: true, season: { schedule: "WEEKLY", time_zone: "UTC", grace: "86400s" } }],
  ["templateMonth", { policy: "SUM", order: "HIGHER_FIRST", unit: "points", matches: true, season: { schedule: "MONTHLY", time_zone: "UTC", grace: "86400s" } }],
  ["templateRating", { policy: "LATEST", order: "HIGHER_FIRST", unit: "points", season: { schedule: "NONE" } }],
  ["templateTrend", { policy: "DECAY", order: "HIGHER_FIRST", half_life: "86400s", season: { schedule: "NONE" } }],
];

/** The settings of a board that can change. */
const changeable = ["title", "unit", "decimals", "divisions", "attributes", "min_score", "max_score", "retention", "private", "matches", "shards"] as const;

function parse(text: string): Rules {
  try {
    const value: unknown = JSON.parse(text || "{}");
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Rules;
  } catch { /* the problem below */ }
  throw new Problem("invalid", "INVALID_ARGUMENT", "JSON");
}

const pretty = (rules: Rules): string => JSON.stringify(rules, null, 2);

export class Boards implements Section {
  private id = "";
  private readonly board: Load<Board>;
  private readonly seasons: Load<Seasons>;

  constructor(private readonly app: Admin) {
    [this.board, this.seasons] = [new Load(app), new Load(app)];
  }

  open(route: URLSearchParams): void {
    const id = route.get("board") ?? "";
    if (id !== this.id) [this.board, this.seasons].forEach((load) => load.clear());
    this.id = id;
    this.reload();
  }

  private reload(): void {
    const { client } = this.app, { id } = this;
    if (!id) return;
    void this.board.read(() => client.board(id));
    void this.seasons.read(() => client.seasons(id));
  }

  private renew = (): void => {
    this.reload();
    void this.app.readBoards().catch(() => undefined); // the section shows what is wrong
  };

  render(): Part {
    const { app } = this, { t } = app;
    if (this.id) return this.single();
    return html`<h1>${t("boards")}</h1>
      <h2>${t("createBoard")}</h2><p class="quiet">${t("createBoardText")}</p>
      <div class="buttons start">${templates.map(([name, rules], i) => html`<button class="template" data-template=${i} @click=${() => app.acts.open(this.create(rules))}>${t(name)}</button>`)}</div>
      <h2>${t("allBoards")}</h2>
      ${table(t("boards"), [t("board"), t("title"), t("policy"), t("schedule"), t("state")], app.boards.map((b) => [html`<a href=${to("boards", { board: b.board_id })}><bdi>${b.board_id}</bdi></a>`,
        theirs(b.title), html`<code>${b.policy} ${b.order}</code>`, html`<code>${b.season?.schedule ?? "NONE"}</code>`,
        [b.filling ? t("fillingShort") : "", b.private ? t("private") : "", b.source ? t("linked") : ""].filter(Boolean).join(" · ") || "–"]))}`;
  }

  private single(): Part {
    const { app, id } = this, { t } = app;
    return html`<p><a href=${to("boards")}>${t("boards")}</a></p>
      ${this.board.show((b) => html`<h1><bdi>${b.title || b.board_id}</bdi></h1>
        <div class="buttons start"><button id="edit" @click=${() => app.acts.open(this.edit(b))}>${t("edit")}</button><a class="button" href="/#board=${encodeURIComponent(id)}">${t("toTheRanking")}</a></div>
        ${b.filling ? html`<p class="notice">${t("filling")}</p>` : nothing}
        <details class="panel"><summary>${t("rules")}</summary>${facts([...flatten(b)].map(([name, value]) => [name, theirs(value)] as const))}</details>
        <h2>${t("seasons")}</h2>${this.seasons.show((s) => this.seasonTable(b, s))}`)}`;
  }

  private seasonTable(b: Board, s: Seasons): Part {
    const { app } = this, { t, format } = app;
    const state = (x: Season): AdminKey => (({ open: "seasonOpen", upcoming: "upcoming", grace: "seasonGrace", closed: "seasonClosed", sealed: "seasonSealed" }) as Record<string, AdminKey>)[x.status] ?? "state";
    return html`${table(t("seasons"), [t("season"), t("state"), t("players"), t("ends"), t("closesAt"), t("sealedAt"), t("amendments"), t("action")], s.seasons.map((x) => [
      html`<bdi class="name">${x.id}</bdi>${x.id === s.current ? html` <span class="badge">${t("currentSeason")}</span>` : nothing}`, t(state(x)),
      x.entrants === undefined ? "–" : format.number(x.entrants), moment(app, x.ended_at ?? x.end), moment(app, x.closes_at), moment(app, x.sealed_at),
      x.amendments.length ? html`<details><summary>${format.number(x.amendments.length)}</summary><ul>${x.amendments.map((a) => html`<li>${moment(app, a.at)}: ${theirs(a.reason)}</li>`)}</ul></details>` : "–",
      b.season?.schedule !== "NONE" && !b.source && x.status !== "sealed" && x.status !== "upcoming"
        ? html`<button class="end" data-season=${x.id} @click=${() => app.acts.open(this.end(b, x))}>${t("endSeason")}</button>` : "–"]))}
      ${s.next_page_token ? html`<button ?disabled=${this.seasons.busy} @click=${() => void this.seasons.read(async () => {
        const next = await app.client.seasons(this.id, s.next_page_token);
        return { ...next, seasons: [...s.seasons, ...next.seasons] };
      })}>${t("moreSeasons")}</button>` : nothing}`;
  }

  private create(template: Rules): Act {
    const { app } = this, fields: Field[] = [
      { name: "board_id", label: "boardId", required: true, hint: "boardIdHint" }, { name: "title", label: "title" },
      { name: "rules", label: "rules", kind: "area", value: pretty(template), required: true, hint: "rulesHint" },
    ];
    const body = (v: Values): Rules => ({ ...parse(v.rules!), board_id: v.board_id, ...(v.title && { title: v.title }) });
    return {
      title: "createBoard", verb: "createBoard", subject: "", fields, records: (v) => ({ board: v.board_id!, action: "board" }), done: this.renew,
      preview: async (v) => {
        const rules = body(v), old = await app.client.board(v.board_id!).catch((e: Problem) => { if (e.kind === "board") return undefined; throw e; });
        if (old) throw new Problem("other", "BOARD_EXISTS", "");
        return html`<p>${app.t("createsThis")}</p>${difference(app, undefined, rules)}`;
      },
      run: (v) => app.client.send("POST", "/v1/boards", body(v)),
    };
  }

  private edit(b: Board): Act {
    const { app } = this, path = boardPath(b.board_id), { effect: _, ...old } = b;
    const start: Rules = { title: b.title, unit: b.unit, decimals: b.decimals, divisions: b.divisions };
    for (const name of changeable) if (b[name] !== undefined) start[name] = b[name];
    const season = b.season && { ...(b.season.grace && { grace: b.season.grace }), ...(b.season.windows?.length && { windows: b.season.windows }) };
    if (season && Object.keys(season).length) start.season = season;
    /** Only what the reader changed. What is missing stays; null removes a bound. */
    const change = (v: Values): Rules => Object.fromEntries(Object.entries(parse(v.rules!)).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(start[name])));
    return {
      title: "edit", verb: "save", subject: b.board_id, fields: [{ name: "rules", label: "rules", kind: "area", value: pretty(start), required: true, hint: "editHint" }],
      records: () => ({ board: b.board_id, action: "board" }), done: this.renew,
      preview: async (v) => {
        const { effect, ...now } = (await app.client.send<Board>("PATCH", path, change(v), { dry_run: true })).value;
        return html`${difference(app, old, now)}${this.boardEffect(effect)}`;
      },
      run: (v) => app.client.send("PATCH", path, change(v)),
    };
  }

  private boardEffect(e: BoardEffect | undefined): Part {
    const { app } = this, { t } = app;
    if (!e || !e.seasons.length && !e.loses_dense) return nothing;
    return html`${e.loses_dense ? html`<p class="trouble"><strong>${t("losesDense")}</strong></p>` : nothing}
      ${e.removed_count ? html`<p class="trouble"><strong>${t("seasonsRemoved", { n: e.removed_count })}</strong></p>` : nothing}
      ${e.seasons.length ? html`<p>${t("seasonsChange", { n: e.changed_count })}</p>${table(t("seasons"), [t("season"), t("players"), t("closesAt"), t("deletedAt")], e.seasons.map((s) => [theirs(s.id),
        s.entrants === undefined ? "–" : app.format.number(s.entrants), html`${moment(app, s.closes_before)} <span class="to"></span> ${moment(app, s.closes_after)}`,
        html`${moment(app, s.removed_before)} <span class="to"></span> ${moment(app, s.removed_after)}`]))}` : nothing}`;
  }

  private end(b: Board, s: Season): Act {
    const { app } = this, path = `${boardPath(b.board_id)}/seasons/${encodeURIComponent(s.id)}:end`;
    const body = (v: Values) => ({ reason: v.reason, ...(v.at && { at: instant(v.at) }) });
    return {
      title: "endSeason", verb: "endSeason", subject: `${b.board_id} · ${s.id}`, fields: [{ name: "at", label: "endAt", kind: "time", hint: "endAtHint" }, reason],
      records: () => ({ board: b.board_id, action: "season" }), done: this.renew, confirm: s.id,
      preview: async (v) => {
        const { value } = await app.client.send<EndSeasonResponse>("POST", path, { ...body(v), dry_run: true });
        return html`<p>${app.t("endSeasonText")}</p>${facts([[app.t("ends"), moment(app, value.season?.ended_at ?? value.season?.end)], [app.t("closesAt"), moment(app, value.season?.closes_at)],
          [app.t("excludedResults"), app.format.number(value.excluded_results)], [app.t("excludedPlayers"), app.format.number(value.excluded_users)],
          [app.t("nextSeason"), theirs(value.next_season)], [app.t("nextStart"), moment(app, value.next_start)]])}`;
      },
      run: (v) => app.client.send("POST", path, body(v)),
    };
  }
}
