// Parts that the sections share: tables of what changes, records of acts, facts, and what is wrong.
import { html, nothing, type TemplateResult } from "lit";
import { Problem, toProblem, type Board } from "../api.ts";
import type { Admin, AdminKey } from "./app.ts";
import { words } from "./calls.ts";
import type { Act } from "./types.gen.ts";

export type Part = TemplateResult | string | typeof nothing;

/** What the page reads for a part of it: nothing yet, the value, or a problem. A later read replaces an earlier one. */
export class Load<T> {
  value: T | undefined;
  problem: Problem | undefined;
  busy = false;
  private turn = 0;
  private again: (() => Promise<T>) | undefined;

  constructor(private readonly app: Admin) {}

  async read(get: () => Promise<T>): Promise<void> {
    const turn = ++this.turn;
    [this.busy, this.problem, this.again] = [true, undefined, get];
    this.app.requestUpdate();
    try {
      const value = await get();
      if (turn === this.turn) this.value = value;
    } catch (error) {
      if (turn === this.turn) this.problem = this.app.noticed(toProblem(error));
    }
    if (turn === this.turn) this.busy = false;
    this.app.requestUpdate();
  }

  clear(): void {
    this.turn++;
    [this.value, this.problem, this.busy] = [undefined, undefined, false];
  }

  show(render: (value: T) => Part): Part {
    if (this.problem) return trouble(this.app, this.problem, false, () => void this.read(this.again!));
    if (this.value === undefined) return this.busy ? html`<p class="bone wait" role="status">${this.app.t("loading")}</p>` : nothing;
    return render(this.value);
  }
}

/** What is wrong, and what to do next. */
export function trouble(app: Admin, problem: Problem, acting: boolean, again?: () => void): TemplateResult {
  const [title, text] = words(problem, acting);
  return html`<div class="trouble" role="alert" data-problem=${problem.kind}><strong>${app.t(title)}</strong><p>${app.t(text)}</p>
    ${problem.message && problem.kind !== "network" ? html`<p class="detail"><bdi>${problem.message}</bdi></p>` : nothing}
    ${again ? html`<button @click=${again}>${app.t("tryNow")}</button>` : nothing}</div>`;
}

export const moment = (app: Admin, at: string | undefined): TemplateResult | string =>
  at ? html`<time datetime=${at} title=${at}>${app.format.moment(at)}</time>` : "–";

/** A text that others wrote: an id, a title, a reason. Its direction may differ from that of the page. */
export const theirs = (text: string | undefined): TemplateResult | string => (text ? html`<bdi>${text}</bdi>` : "–");

export function facts(rows: readonly (readonly [label: string, value: unknown])[]): TemplateResult {
  return html`<dl class="facts">${rows.map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A table that becomes a list of cards on a phone. */
export function table(label: string, heads: readonly string[], rows: readonly (readonly unknown[])[]): TemplateResult {
  return html`<table class="grid" role="table" aria-label=${label}><thead role="rowgroup"><tr role="row">${heads.map((h) => html`<th role="columnheader" scope="col">${h}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((cells) => html`<tr role="row">${cells.map((cell, i) => html`<td role="cell"><span class="head" aria-hidden="true">${heads[i]}</span><div>${cell}</div></td>`)}</tr>`)}</tbody></table>`;
}

export const plain = (v: unknown): string => (v === undefined || v === null || v === "" ? "–" : typeof v === "string" ? v : JSON.stringify(v));

/** The values of an object and its objects, by their paths. A list of simple values is one value. */
export function flatten(value: unknown, path = "", into = new Map<string, string>()): Map<string, string> {
  const simple = (v: unknown) => v === null || typeof v !== "object";
  if (value === undefined) return into;
  if (simple(value)) into.set(path, plain(value));
  else if (Array.isArray(value) && value.every(simple)) into.set(path, value.map(plain).join(", ") || "–");
  else for (const [name, part] of Object.entries(value as object)) flatten(part, path ? `${path}.${name}` : name, into);
  return into;
}

/** What differs between two objects. Without before or after, everything the other one has. */
export function difference(app: Admin, before: unknown, after: unknown): TemplateResult {
  const old = flatten(before), now = flatten(after), paths = [...new Set([...old.keys(), ...now.keys()])].filter((p) => old.get(p) !== now.get(p));
  if (!paths.length) return html`<p class="quiet">${app.t("nothingChanges")}</p>`;
  return table(app.t("changes"), [app.t("field"), app.t("before"), app.t("after")], paths.map((p) =>
    [html`<code>${p}</code>`, theirs(old.get(p)), theirs(now.get(p))]));
}

export interface EffectEntry {
  board: string; season: string; user_id?: string; score?: number;
  score_before?: number; score_after?: number; rank_before?: number; rank_after?: number;
}
export interface Effect { entries: EffectEntry[]; truncated: boolean; degraded: boolean; changed_count?: number; board_count?: number; season_count?: number }

/** The entries that an act changes, with their scores and ranks before and after. */
export function effect(app: Admin, e: Effect | undefined): TemplateResult {
  if (!e?.entries.length) return html`<p class="quiet">${app.t("noEntryChanges")}</p>`;
  const score = (board: string, n: number | undefined) => (n === undefined ? "–" : app.score(board, n));
  const rank = (n: number | undefined) => (n === undefined ? "–" : app.format.number(n)), users = e.entries.some((x) => x.user_id);
  return html`<p>${app.t("entriesChange", { n: e.changed_count ?? e.entries.length })}${e.truncated ? " " + app.t("onlySome", { n: e.entries.length }) : ""}${
    e.degraded ? " " + app.t("degraded") : ""}</p>
    ${table(app.t("changes"), [...(users ? [app.t("player")] : []), app.t("board"), app.t("season"), app.t("score"), app.t("rank")], e.entries.map((x) => [
      ...(users ? [theirs(x.user_id)] : []), theirs(x.board), theirs(x.season),
      x.score === undefined ? arrow(score(x.board, x.score_before), score(x.board, x.score_after)) : score(x.board, x.score),
      arrow(rank(x.rank_before), rank(x.rank_after)),
    ]))}`;
}

const arrow = (before: string, after: string): TemplateResult => html`<bdi>${before}</bdi> <span class="to" aria-hidden="true"></span><span class="hidden">→</span> <bdi>${after}</bdi>`;

/** A record of the audit log: who did what, to what, why; opened, what it changed. */
export function record(app: Admin, act: Act, open = false): TemplateResult {
  const system = act.actor === "system", state: AdminKey | "" = act.erased ? "actErased" : act.failed ? "actFailed" : act.completed_at || system ? "" : "actUnknown";
  const of = [act.board, act.season, act.match_id].filter(Boolean);
  return html`<details class="record" ?open=${open}><summary><code>${act.action}</code>
    ${act.user_id ? html`<bdi class="name">${act.user_id}</bdi>` : nothing}${of.length ? html`<bdi>${of.join(" · ")}</bdi>` : nothing}
    ${state ? html`<span class="badge bad">${app.t(state)}</span>` : nothing}
    <small>${moment(app, act.at)} · <bdi>${system ? app.t("theService") : act.actor_name || act.actor}</bdi>${act.reason ? html` · <q><bdi>${act.reason}</bdi></q>` : nothing}</small></summary>
    ${difference(app, act.before, act.after)}
    ${facts([[app.t("actor"), theirs(act.actor)], [app.t("requestId"), html`<code>${act.request_id || "–"}</code>`]])}</details>`;
}

/** One record for each act: the outcome, which precedes its intent, or the intent alone. */
export function outcomes(acts: readonly Act[]): Act[] {
  const seen = new Set<string>();
  return acts.filter((a) => !seen.has(a.id) && seen.add(a.id));
}

/** A choice among the boards. all is the text of the choice of none of them. */
export function boardSelect(app: Admin, id: string, boards: readonly Board[], chosen: string, choose: (board: string) => void, all = ""): TemplateResult {
  return html`<label class="field"><span>${app.t("board")}</span><select id=${id} @change=${(e: Event) => choose((e.target as HTMLSelectElement).value)}>
    ${all ? html`<option value="" .selected=${!chosen}>${all}</option>` : nothing}
    ${boards.map((b) => html`<option value=${b.board_id} .selected=${b.board_id === chosen}>${b.title || b.board_id}</option>`)}</select></label>`;
}
