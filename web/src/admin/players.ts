// Players: search, bans in force, and a player with results, recorded changes, profile and acts.
import { html, nothing } from "lit";
import { boardPath, nameOf, type Entry, type Leaderboard, type UserScores } from "../api.ts";
import { avatar } from "../parts.ts";
import { instant, type Act, type Field, type Values } from "./act.ts";
import { to, type Admin, type AdminKey, type Section } from "./app.ts";
import { userPath } from "./calls.ts";
import { boardSelect, difference, effect, facts, Load, moment, outcomes, record, table, theirs, type Effect, type Part } from "./show.ts";
import type { Act as Record_, Ban, GetResultResponse, ListActsResponse, ListBansResponse, ListUserResultsResponse, Profile } from "./types.gen.ts";

interface Pages<T> { list: T[]; next: string }
const PAGE = 50;

export const reason: Field = { name: "reason", label: "reason", required: true, hint: "reasonHint" };

/** A person or thing that is ranked: initials, name and id. Pictures of users do not load on this page. */
function who(e: { user_id: string; profile?: { display_name?: string } }): Part {
  return html`${avatar({ user_id: e.user_id, profile: { display_name: e.profile?.display_name } })}<span class="who"><bdi class="name">${nameOf(e)}</bdi>${
    e.profile?.display_name ? html`<small><bdi>${e.user_id}</bdi></small>` : nothing}</span>`;
}

export class Players implements Section {
  private user = "";
  private board = "";
  private text = "";
  private readonly found: Load<Pages<Entry>>;
  private readonly bans: Load<Pages<Ban>>;
  private readonly entries: Load<UserScores>;
  private readonly profile: Load<Profile | null>;
  private readonly results: Load<Pages<GetResultResponse>>;
  private readonly acts: Load<Pages<Record_>>;

  constructor(private readonly app: Admin) {
    [this.found, this.bans, this.entries, this.profile, this.results, this.acts] = [new Load(app), new Load(app), new Load(app), new Load(app), new Load(app), new Load(app)];
  }

  open(route: URLSearchParams): void {
    const user = route.get("user") ?? "", board = route.get("board") ?? "";
    this.board = this.app.board(board) ? board : this.app.boards[0]?.board_id ?? "";
    if (user !== this.user) for (const load of [this.bans, this.entries, this.profile, this.results, this.acts]) load.clear();
    this.user = user;
    this.reload();
  }

  /** A key for some boards must name one. */
  private get scope() { return this.app.limited ? { board: this.board } : {}; }

  private reload(): void {
    const { client } = this.app, { user, board } = this;
    void this.bans.read(() => this.readBans(""));
    if (!user) return;
    void this.entries.read(() => client.everywhere(user));
    void this.profile.read(() => client.get<Profile>(userPath(user) + "/profile").catch((e: { reason?: string }) => { if (e.reason === "PROFILE_NOT_FOUND") return null; throw e; }));
    if (board) void this.results.read(() => this.readResults(""));
    void this.acts.read(() => this.readActs(""));
  }

  private async readBans(token: string): Promise<Pages<Ban>> {
    const a = await this.app.client.get<ListBansResponse>("/v1/bans", { ...this.scope, user: this.user, limit: this.user ? 1000 : PAGE, page_token: token });
    return { list: a.bans.filter((b) => !this.user || b.user_id === this.user), next: a.next_page_token };
  }

  private async readResults(token: string): Promise<Pages<GetResultResponse>> {
    const a = await this.app.client.get<ListUserResultsResponse>(`${boardPath(this.board)}/results/${encodeURIComponent(this.user)}`, { limit: PAGE, page_token: token });
    return { list: a.results, next: a.next_page_token };
  }

  private async readActs(token: string): Promise<Pages<Record_>> {
    const a = await this.app.client.get<ListActsResponse>("/v1/audit", { ...this.scope, user_id: this.user, limit: PAGE, page_token: token });
    return { list: outcomes(a.acts), next: a.next_page_token };
  }

  private async search(token: string): Promise<Pages<Entry>> {
    const { data } = await this.app.client.get<{ data: Leaderboard }>(boardPath(this.board) + "/users", { prefix: this.text, limit: PAGE, page_token: token });
    return { list: data.leaderboard, next: data.next_page_token };
  }

  private more<T>(load: Load<Pages<T>>, read: (token: string) => Promise<Pages<T>>, label: AdminKey): Part {
    const { value } = load;
    if (!value?.next) return nothing;
    return html`<button ?disabled=${load.busy} @click=${() => void load.read(async () => {
      const page = await read(value.next);
      return { list: [...value.list, ...page.list], next: page.next };
    })}>${this.app.t(label)}</button>`;
  }

  render(): Part {
    return this.user ? this.player() : this.overview();
  }

  private overview(): Part {
    const { app, board, text } = this, { t } = app;
    const submit = (e: Event) => {
      e.preventDefault();
      this.text = String(new FormData(e.target as HTMLFormElement).get("player")).trim();
      if (this.text && this.board) void this.found.read(() => this.search(""));
    };
    return html`<h1>${t("players")}</h1>
      <form class="filters panel" role="search" @submit=${submit}>
        ${boardSelect(app, "player-board", app.boards, board, (b) => { this.board = b; this.found.clear(); app.requestUpdate(); })}
        <label class="field wide"><span>${t("nameOrId")}</span><input id="player" name="player" required maxlength="128" autocomplete="off" spellcheck="false" dir="auto" .value=${text}></label>
        <button class="main">${t("find")}</button></form>
      ${text ? html`<p><a class="button" id="exact" href=${to("players", { user: text, board })}>${t("openExactly")} <bdi>${text}</bdi></a></p>` : nothing}
      ${this.found.show(({ list }) => html`${list.length ? html`<ul class="people">${list.map((e) => html`<li><a href=${to("players", { user: e.user_id, board })}>${who(e)}<span class="score">${
        app.score(board, e.score)}</span></a></li>`)}</ul>` : html`<p class="quiet">${t("nobodyFound")}</p>`}${this.more(this.found, (token) => this.search(token), "showMore")}`)}
      <h2>${t("bansInForce")}</h2>
      ${this.bans.show(({ list }) => html`${list.length ? this.banTable(list, true) : html`<p class="quiet">${t("noBans")}</p>`}${this.more(this.bans, (token) => this.readBans(token), "showMore")}`)}`;
  }

  private banTable(list: Ban[], users: boolean): Part {
    const { app } = this, { t } = app;
    return table(t("bansInForce"), [...(users ? [t("player")] : []), t("board"), t("reason"), t("since"), t("until"), t("action")], list.map((b) => [
      ...(users ? [html`<a href=${to("players", { user: b.user_id })}><bdi>${b.user_id}</bdi></a>`] : []), b.board ? theirs(b.board) : t("everyBoard"), theirs(b.reason), moment(app, b.at),
      b.until ? moment(app, b.until) : t("forEver"), html`<button class="unban" @click=${() => this.app.acts.open(this.unban(b))}>${t("liftBan")}</button>`]));
  }

  private player(): Part {
    const { app, user, board } = this, { t } = app;
    return html`<p><a href=${to("players")}>${t("players")}</a></p>
      <div class="person">${who({ user_id: user, profile: this.profile.value ?? undefined })}<h1 class="hidden">${user}</h1></div>
      <div class="buttons start"><button id="ban" @click=${() => app.acts.open(this.ban())}>${t("ban")}</button>
        <button id="edit-profile" @click=${() => app.acts.open(this.editProfile())} ?disabled=${this.profile.value === undefined}>${t("editProfile")}</button>
        ${this.profile.value ? html`<button id="delete-profile" @click=${() => app.acts.open(this.deleteProfile())}>${t("deleteProfile")}</button>` : nothing}
        ${app.limited ? nothing : html`<button id="erase" @click=${() => app.acts.open(this.erase())}>${t("erase")}</button>`}</div>
      ${this.bans.show(({ list }) => (list.length ? html`<div class="trouble calm"><strong>${t("isBanned")}</strong>${this.banTable(list, false)}</div>` : nothing))}
      <div class="two"><section><h2>${t("standings")}</h2>${this.entries.show((v) => this.standings(v))}</section>
      <section><h2>${t("profile")}</h2>${this.profile.show((p) => (p ? facts([[t("displayName"), theirs(p.display_name)], [t("country"), theirs(p.country)], [t("picture"), theirs(p.avatar_url)],
        [t("updated"), moment(app, p.updated_at)]]) : html`<p class="quiet">${t("noProfile")}</p>`))}</section></div>
      <h2>${t("timeline")}</h2>
      <div class="filters">${boardSelect(app, "timeline-board", app.boards, board, (b) => app.go(to("players", { user, board: b })))}</div>
      ${this.timeline()}`;
  }

  private standings(v: UserScores): Part {
    const { app } = this, { t } = app, list = v.scores;
    if (!list.length) return html`<p class="quiet">${t("noStandings")}</p>`;
    return table(t("standings"), [t("board"), t("season"), t("score"), t("rank")], list.map((e) => [theirs(app.board(e.board)?.title || e.board), theirs(e.season), app.score(e.board, e.score),
      e.rank === undefined ? "–" : app.format.number(e.rank)]));
  }

  /** The results on the board, and all recorded changes, the newest first. */
  private timeline(): Part {
    const { app, board } = this, results = this.results.value?.list ?? [], acts = (this.acts.value?.list ?? []).filter((a) => !a.board || a.board === board);
    const items = [
      ...results.map((r) => ({ at: r.result?.achieved_at ?? "", part: this.resultItem(r) })), ...acts.map((a) => ({ at: a.at ?? "", part: record(app, a) })),
    ].sort((x, y) => Date.parse(y.at || "0") - Date.parse(x.at || "0"));
    const waiting = this.results.show(() => nothing), alsoWaiting = this.acts.show(() => nothing);
    return html`${waiting}${alsoWaiting}${items.length ? html`<ol class="timeline">${items.map((i) => html`<li>${i.part}</li>`)}</ol>`
      : this.results.value && this.acts.value ? html`<p class="quiet">${app.t("noTimeline")}</p>` : nothing}
      <div class="buttons start">${this.more(this.results, (token) => this.readResults(token), "olderResults")}${this.more(this.acts, (token) => this.readActs(token), "olderChanges")}</div>`;
  }

  private resultItem(r: GetResultResponse): Part {
    const { app } = this, { t } = app, amount = r.result?.score ?? r.result?.points, live = r.status === "APPLIED" || r.status === "VOIDED";
    return html`<article class="result"><div><strong class="score">${amount === undefined ? t("oneResult") : app.score(this.board, amount)}</strong>
      <span class="badge ${live ? "" : "bad"}">${t(statusText[r.status])}</span> <bdi class="name">${r.match_id}</bdi>
      <small>${moment(app, r.result?.achieved_at)} · <bdi>${r.season}</bdi> · ${t("revision", { n: r.revision })}${r.reason ? html` · <bdi>${r.reason}</bdi>` : nothing}</small></div>
      ${live && r.result ? html`<div class="buttons"><button class="correct" @click=${() => app.acts.open(this.correct(r))}>${t("correct")}</button>
        <button class="retract" @click=${() => app.acts.open(this.retract(r))}>${t("retract")}</button></div>` : nothing}</article>`;
  }

  private act(title: AdminKey, verb: AdminKey, fields: readonly Field[], rest: Pick<Act, "preview" | "run"> & Partial<Act>): Act {
    return { title, verb, fields, subject: this.user, records: () => ({ ...this.scope, user_id: this.user }), done: () => this.reload(), ...rest };
  }

  private ban(): Act {
    const { app, user } = this, path = userPath(user) + ":ban";
    const options = [...(app.limited ? [] : [["", app.t("everyBoard")] as const]), ...app.boards.map((b) => [b.board_id, b.title || b.board_id] as const)];
    const body = (v: Values) => ({ ...(v.board && { board: v.board }), reason: v.reason, ...(v.until && { until: instant(v.until) }) });
    return this.act("ban", "ban", [{ name: "board", label: "board", kind: "select", options }, { name: "until", label: "until", kind: "time", hint: "untilHint" }, reason], {
      preview: async (v) => effect(app, (await app.client.send<{ effect: Effect }>("POST", path, { ...body(v), dry_run: true })).value.effect),
      run: (v) => app.client.send("POST", path, body(v)),
    });
  }

  private unban(b: Ban): Act {
    const { app } = this, path = userPath(b.user_id) + ":unban", body = (v: Values) => ({ ...(b.board && { board: b.board }), reason: v.reason });
    return this.act("liftBan", "liftBan", [reason], {
      subject: b.user_id, records: () => ({ user_id: b.user_id, ...(b.board && { board: b.board }) }),
      preview: async (v) => effect(app, (await app.client.send<{ effect: Effect }>("POST", path, { ...body(v), dry_run: true })).value.effect),
      run: (v) => app.client.send("POST", path, body(v)),
    });
  }

  private editProfile(): Act {
    const { app, user } = this, old = this.profile.value, path = userPath(user) + "/profile";
    const now = (v: Values) => ({ ...(v.name && { display_name: v.name }), ...(v.country && { country: v.country }), ...(v.picture && { avatar_url: v.picture }),
      ...(old?.attributes && { attributes: old.attributes }) });
    const parts = (p: Profile | null | undefined) => ({ display_name: p?.display_name, country: p?.country, avatar_url: p?.avatar_url });
    return this.act("editProfile", "save", [
      { name: "name", label: "displayName", value: old?.display_name }, { name: "country", label: "country", value: old?.country, hint: "countryHint" },
      { name: "picture", label: "picture", value: old?.avatar_url, hint: "pictureHint" }, reason], {
      preview: async (v) => difference(app, parts(old), parts(now(v))),
      run: (v) => app.client.send("PUT", path, now(v), { reason: v.reason }),
    });
  }

  private deleteProfile(): Act {
    const { app } = this, { display_name, country, avatar_url } = this.profile.value!;
    return this.act("deleteProfile", "deleteProfile", [reason], {
      preview: async () => difference(app, { display_name, country, avatar_url }, undefined),
      run: (v) => app.client.send("DELETE", userPath(this.user) + "/profile", undefined, { reason: v.reason }),
    });
  }

  private erase(): Act {
    const { app, user } = this;
    return this.act("erase", "erase", [], {
      confirm: user, records: () => ({ action: "user.erase" }),
      preview: async () => {
        const standings = await app.client.everywhere(user);
        return html`<p class="trouble"><strong>${app.t("eraseWarning")}</strong></p>${this.standings(standings)}`;
      },
      run: () => app.client.send("POST", userPath(user) + ":erase", {}),
    });
  }

  private correct(r: GetResultResponse): Act {
    const { app, user, board } = this, path = `${boardPath(board)}/results/${encodeURIComponent(user)}/${encodeURIComponent(r.match_id)}`;
    const amount = r.result!.score === undefined ? "points" : "score", ties = app.board(board)?.tie_breakers ?? [], old = r.result!.tie_breakers?.join(", ") ?? "";
    const body = (v: Values) => ({
      season: r.season, revision: r.revision, reason: v.reason, ...(v.amount !== undefined && { [amount]: v.amount }),
      ...(v.ties !== undefined && v.ties !== old && { tie_breakers: v.ties.split(",").map((x) => x.trim()).filter(Boolean) }),
    });
    const counts = app.board(board)?.policy === "COUNT";
    return this.act("correct", "correct", [
      ...(counts ? [] : [{ name: "amount", label: amount === "score" ? "score" : "pointsHeading", value: String(r.result![amount] ?? ""), required: true, hint: "amountHint" } as const]),
      ...(ties.length ? [{ name: "ties", label: "tieBreakers", value: old, hint: "tieBreakersHint" } as const] : []), reason], {
      subject: `${user} · ${r.match_id}`, records: () => ({ board, user_id: user }),
      preview: async (v) => {
        const { value } = await app.client.send<{ result?: object; effect?: Effect }>("PATCH", path, { ...body(v), dry_run: true });
        return html`${difference(app, r.result, value.result)}${effect(app, value.effect)}`;
      },
      run: (v) => app.client.send("PATCH", path, body(v)),
    });
  }

  private retract(r: GetResultResponse): Act {
    const { app, user, board } = this, path = `${boardPath(board)}/results/${encodeURIComponent(user)}/${encodeURIComponent(r.match_id)}:retract`;
    const body = (v: Values) => ({ season: r.season, reason: v.reason });
    return this.act("retract", "retract", [reason], {
      subject: `${user} · ${r.match_id}`, records: () => ({ board, user_id: user }),
      preview: async (v) => effect(app, (await app.client.send<{ effect: Effect }>("POST", path, { ...body(v), dry_run: true })).value.effect),
      run: (v) => app.client.send("POST", path, body(v)),
    });
  }
}

export const statusText: Record<GetResultResponse["status"], AdminKey> = {
  APPLIED: "applied", SUPERSEDED: "superseded", RETRACTED: "retracted", REJECTED: "rejected", VOIDED: "voided",
};
