// Health: readiness, the rank index, lag, sweeps, boards, and verification.
import { html, nothing } from "lit";
import { Problem, toProblem, type Stats } from "../api.ts";
import type { Act } from "./act.ts";
import type { Admin, AdminKey, Section } from "./app.ts";
import type { Finding } from "./calls.ts";
import { facts, Load, moment, table, theirs, trouble, type Part } from "./show.ts";

interface State { ready: string | undefined; metrics: Map<string, number> | undefined }
const BOARDS = 50, SHOWN = 100;

/** Sums the samples of each metric, or takes the least of times. A server may have the probes at another address. */
function readMetrics(text: string): Map<string, number> {
  const all = new Map<string, number>();
  for (const line of text.split("\n")) {
    const m = /^(leaderboard_\w+)(?:\{.*\})? (\S+)$/.exec(line);
    if (!m) continue;
    const [, name, value] = m as unknown as [string, string, string], old = all.get(name);
    all.set(name, old === undefined ? Number(value) : name.endsWith("_timestamp_seconds") ? Math.min(old, Number(value)) : old + Number(value));
  }
  return all;
}

export class Health implements Section {
  private readonly state: Load<State>;
  private readonly stats: Load<(Stats & { board_id: string })[]>;
  private board = "";
  private checking: { findings: Finding[]; done: number; summary?: Finding["summary"]; problem?: Problem; busy: boolean } | undefined;

  constructor(private readonly app: Admin) {
    [this.state, this.stats] = [new Load(app), new Load(app)];
  }

  open(): void {
    void this.state.read(() => this.readState());
    void this.stats.read(() => this.readStats());
    if (this.app.limited && !this.board) this.board = this.app.boards[0]?.board_id ?? "";
  }

  private async readState(): Promise<State> {
    const read = async (path: string) => {
      const answer = await fetch(path).catch((e: unknown) => { throw new Problem("network", "", String(e)); });
      return { answer, text: await answer.text() };
    };
    const [ready, metrics] = await Promise.all([read("/readyz"), read("/metrics")]);
    return {
      ready: ready.answer.ok ? "" : ready.answer.status === 503 ? ready.text : undefined,
      metrics: metrics.answer.ok ? readMetrics(metrics.text) : undefined,
    };
  }

  private async readStats(): Promise<(Stats & { board_id: string })[]> {
    const list = [];
    for (const b of this.app.boards.slice(0, BOARDS)) {
      const stats = await this.app.client.stats({ board: b.board_id, season: "", division: "", method: "competition" }, { buckets: 1 }).catch((e: unknown) => {
        const p = toProblem(e);
        if (p.kind === "season" || p.reason === "RANK_UNAVAILABLE") return undefined;
        throw p;
      });
      list.push({ ...(stats ?? ({} as Stats)), board_id: b.board_id });
    }
    return list;
  }

  render(): Part {
    const { t } = this.app;
    return html`<h1>${t("health")}</h1><button id="reload" @click=${() => this.open()}>${t("readAgain")}</button>
      ${this.state.show((s) => this.server(s))}
      <h2>${t("boards")}</h2>${this.stats.show((list) => html`${table(t("boards"), [t("board"), t("season"), t("players"), t("lastChange")], list.map((s) => [theirs(s.board_id),
        theirs(s.season), s.total === undefined ? t("ranksUnavailable") : this.app.format.number(s.total), moment(this.app, s.as_of)]))}${
        this.app.boards.length > BOARDS ? html`<p class="quiet">${t("onlySome", { n: BOARDS })}</p>` : nothing}`)}
      ${this.verification()}`;
  }

  private server({ ready, metrics }: State): Part {
    const { app } = this, { t, format } = app;
    const number = (name: string) => (metrics?.has(name) ? format.number(metrics.get(name)!) : "–");
    const time = (name: string) => (metrics?.get(name) ? moment(app, new Date(metrics.get(name)! * 1000).toISOString()) : "–");
    const rows: [AdminKey, unknown][] = [["ready", ready === undefined ? t("elsewhere") : ready === "" ? t("yes") : theirs(ready)]];
    if (metrics) {
      rows.push(["indexComplete", time("leaderboard_index_filled_timestamp_seconds")], ["indexFills", number("leaderboard_index_fills")], ["lag", number("leaderboard_consumer_lag_messages")],
        ["indexLag", number("leaderboard_consumer_index_lag_messages")], ["lastSweep", time("leaderboard_sweep_last_success_timestamp_seconds")]);
    }
    return html`${facts(rows.map(([key, value]) => [t(key), value] as const))}<p class="quiet">${t(metrics ? "ofThisProcess" : "metricsElsewhere")}</p>`;
  }

  private verification(): Part {
    const { app, checking } = this, { t } = app;
    return html`<h2>${t("verify")}</h2><p class="quiet">${t("verifyText")}</p>
      <div class="filters"><label class="field"><span>${t("board")}</span><select id="verify-board" @change=${(e: Event) => { this.board = (e.target as HTMLSelectElement).value; }}>
        ${app.limited ? nothing : html`<option value="">${t("everyBoard")}</option>`}${app.boards.map((b) => html`<option value=${b.board_id} .selected=${b.board_id === this.board}>${b.title || b.board_id}</option>`)}
        </select></label><button class="main" id="verify" ?disabled=${checking?.busy} @click=${() => void this.verify()}>${t("verifyNow")}</button></div>
      ${checking ? html`<div aria-live="polite" id="verified">${checking.problem ? trouble(app, checking.problem, false) : nothing}
        ${checking.busy ? html`<p>${t("checked", { n: checking.done })}</p>` : nothing}${this.found(checking.findings, checking.summary)}
        ${checking.summary?.differences ? html`<button id="repair" @click=${() => app.acts.open(this.repair())}>${t("repair")}</button>` : nothing}</div>` : nothing}`;
  }

  private found(findings: Finding[], summary: Finding["summary"]): Part {
    const { t, format } = this.app;
    return html`${summary ? html`<p><strong>${summary.differences ? t("differences", { n: summary.differences }) : t("noDifferences")}</strong></p>${facts([[t("seasons"), format.number(summary.seasons)],
      [t("players"), format.number(summary.users)], [t("results"), format.number(summary.results)], [t("repaired"), format.number(summary.repaired)]])}` : nothing}
      ${findings.length ? table(t("verify"), [t("difference"), t("board"), t("season"), t("player"), t("detail")], findings.map(({ difference: d }) => [html`<code>${d!.kind}</code>`, theirs(d!.board),
        theirs(d!.season), theirs(d!.user_id), theirs(d!.detail)])) : nothing}`;
  }

  private async verify(): Promise<void> {
    const { app } = this, state: NonNullable<Health["checking"]> = (this.checking = { findings: [], done: 0, busy: true });
    app.requestUpdate();
    try {
      await app.client.verify(this.board, "", false, (f) => {
        if (f.difference && state.findings.length < SHOWN) state.findings.push(f);
        if (f.progress) state.done = f.progress.done;
        state.summary = f.summary ?? state.summary;
        app.requestUpdate();
      });
    } catch (error) {
      state.problem = app.noticed(toProblem(error));
    }
    state.busy = false;
    app.requestUpdate();
  }

  /** A repair. Its preview is a comparison. */
  private repair(): Act {
    const { app, board } = this, collect = async (repair: boolean) => {
      const findings: Finding[] = [];
      let summary: Finding["summary"];
      const { requestId } = await app.client.verify(board, "", repair, (f) => {
        if (f.difference && findings.length < SHOWN) findings.push(f);
        summary = f.summary ?? summary;
      });
      return { value: this.found(findings, summary) as Part, requestId };
    };
    return {
      title: "repair", verb: "repair", subject: board || app.t("everyBoard"), fields: [], records: () => ({ action: "verify", ...(board && { board }) }), done: () => void this.verify(),
      preview: async () => (await collect(false)).value, run: () => collect(true), result: (value: Part) => value,
    };
  }
}
