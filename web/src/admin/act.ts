// An act: a form, the preview of what it changes, and afterwards its record in the audit log.
import { html, nothing, type TemplateResult } from "lit";
import { toProblem, type Problem, type Query } from "../api.ts";
import type { Admin, AdminKey } from "./app.ts";
import type { Answer } from "./calls.ts";
import { record, trouble, type Part } from "./show.ts";
import type { Act as Record_ } from "./types.gen.ts";

export type Values = Record<string, string>;

export interface Field {
  name: string;
  label: AdminKey;
  kind?: "text" | "area" | "time" | "select" | "check";
  options?: readonly (readonly [value: string, text: string])[];
  value?: string;
  required?: boolean;
  hint?: AdminKey;
}

export interface Act {
  title: AdminKey;
  /** What the act is about: a user, a match, a board, a key. */
  subject: string;
  fields: readonly Field[];
  /** The text of the button that performs the act. */
  verb: AdminKey;
  /** A text that the reader must type, because the act cannot be undone. */
  confirm?: string;
  /** Reads what the act would change. It throws a Problem, which the form then shows. */
  preview: (values: Values) => Promise<Part>;
  run: (values: Values) => Promise<Answer<unknown>>;
  /** Shows an answer that only this moment has. */
  result?: (value: never) => Part;
  /** Which records of the audit log have the act. */
  records: (values: Values) => Query;
  done: () => void;
}

/** Acts that take nothing away from anybody. */
const gentle: readonly AdminKey[] = ["save", "createBoard", "createKey", "liftBan", "restore", "correct", "repair", "replay"];

/** The time of an input, which has the reader's time zone, for the API; "" if it is empty. */
export const instant = (value: string | undefined): string => (value ? new Date(value).toISOString() : "");

export class ActDialog {
  private act: Act | undefined;
  private step: "form" | "preview" | "done" = "form";
  private values: Values = {};
  private shown: Part = nothing;
  private result: Part = nothing;
  private records: Record_[] | undefined;
  private problem: Problem | undefined;
  private acting = false;
  private busy = false;
  private typed = "";

  constructor(private readonly app: Admin) {}

  private get element(): HTMLDialogElement | null { return this.app.renderRoot.querySelector("dialog.act"); }

  open(act: Act): void {
    Object.assign(this, { act, step: "form", values: {}, shown: nothing, result: nothing, records: undefined, problem: undefined, busy: false, typed: "" });
    this.app.requestUpdate();
    void this.app.updateComplete.then(() => {
      if (!this.element?.open) this.element?.showModal();
      if (!act.fields.length) void this.preview({});
    });
  }

  close(): void {
    this.element?.close();
    this.act = undefined;
    this.result = this.shown = nothing; // a secret leaves the page
    this.app.requestUpdate();
  }

  /** The event comes later than the close: another act may be open by then. */
  private closed(act: Act, element: HTMLDialogElement): void {
    if (this.act === act && !element.open) this.close();
  }

  private async attempt(acting: boolean, work: (act: Act) => Promise<void>): Promise<void> {
    const { act } = this;
    if (!act || this.busy) return;
    [this.busy, this.problem, this.acting] = [true, undefined, acting];
    this.app.requestUpdate();
    try {
      await work(act);
    } catch (error) {
      if (this.act === act) this.problem = toProblem(error);
    }
    if (this.act !== act) return;
    this.busy = false;
    this.app.requestUpdate();
    await this.app.updateComplete;
    this.element?.querySelector<HTMLElement>(".trouble, h2")?.focus();
  }

  private async preview(values: Values): Promise<void> {
    this.values = values;
    await this.attempt(false, async (act) => {
      const shown = await act.preview(values);
      if (this.act !== act) return;
      this.shown = shown;
      this.step = "preview";
    });
  }

  private async run(): Promise<void> {
    await this.attempt(true, async (act) => {
      const { value, requestId } = await act.run(this.values);
      if (this.act === act) {
        this.result = act.result ? act.result(value as never) : nothing;
        this.step = "done";
      }
      this.app.requestUpdate();
      act.done();
      const records = await this.app.client.record(act.records(this.values), requestId).catch(() => []);
      if (this.act === act) this.records = records;
    });
  }

  private submit(e: Event): void {
    e.preventDefault();
    const form = e.target as HTMLFormElement, values: Values = {};
    for (const [name, value] of new FormData(form)) values[name] = String(value).trim();
    void this.preview(values);
  }

  render(): Part {
    const { act, app } = this;
    if (!act) return nothing;
    return html`<dialog class="act" aria-labelledby="act-title" @close=${(e: Event) => this.closed(act, e.target as HTMLDialogElement)}><div>
      <h2 id="act-title" tabindex="-1">${app.t(act.title)}${act.subject ? html` <bdi class="subject">${act.subject}</bdi>` : nothing}</h2>
      <p class="steps quiet">${app.t(this.step === "form" ? "stepForm" : this.step === "preview" ? "stepPreview" : "stepDone")}</p>
      ${this.problem ? html`<div tabindex="-1">${trouble(app, this.problem, this.acting)}</div>` : nothing}
      ${this.step === "done" ? this.done() : this.step === "preview" ? this.previewed(act) : this.form(act)}</div></dialog>`;
  }

  private form(act: Act): TemplateResult {
    const { app } = this;
    return html`<form @submit=${(e: Event) => this.submit(e)}>${act.fields.map((f) => this.field(f))}
      <div class="buttons"><button type="button" @click=${() => this.close()}>${app.t("cancel")}</button>
        ${act.fields.length ? html`<button class="main" id="preview" ?disabled=${this.busy}>${app.t("preview")}</button>` : nothing}</div></form>`;
  }

  private field(f: Field): TemplateResult {
    const id = "field-" + f.name, value = this.values[f.name] ?? f.value ?? "", hint = f.hint ? html`<small id="${id}-hint">${this.app.t(f.hint)}</small>` : nothing;
    const by = f.hint ? id + "-hint" : nothing;
    switch (f.kind) {
      case "check":
        return html`<div class="field"><label class="check"><input type="checkbox" id=${id} name=${f.name} value="true" .checked=${value === "true"} aria-describedby=${by}> <span>${this.app.t(f.label)}</span></label>${hint}</div>`;
      case "select":
        return html`<div class="field"><label for=${id}>${this.app.t(f.label)}</label><select id=${id} name=${f.name} aria-describedby=${by}>${f.options!.map(([v, text]) =>
          html`<option value=${v} .selected=${v === value}>${text}</option>`)}</select>${hint}</div>`;
      case "area":
        return html`<div class="field"><label for=${id}>${this.app.t(f.label)}</label><textarea id=${id} name=${f.name} rows="4" dir="ltr" spellcheck="false" .value=${value}
          ?required=${f.required} aria-describedby=${by}></textarea>${hint}</div>`;
      default:
        return html`<div class="field"><label for=${id}>${this.app.t(f.label)}</label><input id=${id} name=${f.name} type=${f.kind === "time" ? "datetime-local" : "text"} .value=${value} step="1"
          ?required=${f.required} autocomplete="off" spellcheck="false" dir="auto" aria-describedby=${by}>${hint}</div>`;
    }
  }

  private previewed(act: Act): TemplateResult {
    const { app } = this, confirmed = act.confirm === undefined || this.typed === act.confirm;
    return html`<div class="previewed">${this.shown}</div>
      <form @submit=${(e: Event) => { e.preventDefault(); if (confirmed) void this.run(); }}>
      ${act.confirm === undefined ? nothing : html`<div class="field"><label for="confirm">${app.t("typeToConfirm")} <bdi><code>${act.confirm}</code></bdi></label>
        <input id="confirm" autocomplete="off" autocapitalize="off" spellcheck="false" dir="auto" .value=${this.typed} @input=${(e: Event) => {
          this.typed = (e.target as HTMLInputElement).value;
          app.requestUpdate();
        }}></div>`}
      <div class="buttons"><button type="button" @click=${() => this.back(act)}>${app.t(act.fields.length ? "back" : "cancel")}</button>
        <button class="main ${gentle.includes(act.verb) ? "" : "danger"}" id="run" ?disabled=${this.busy || !confirmed}>${app.t(act.verb)}</button></div></form>`;
  }

  private back(act: Act): void {
    if (!act.fields.length) return this.close();
    [this.step, this.problem, this.typed] = ["form", undefined, ""];
    this.app.requestUpdate();
  }

  private done(): TemplateResult {
    const { app, records } = this;
    return html`${this.result}<h3>${app.t("theRecord")}</h3>
      ${!records ? html`<p role="status" class="bone wait">${app.t("loading")}</p>` : records.length ? records.map((r) => record(app, r, records.length === 1))
        : html`<p>${app.t("noRecordYet")}</p>`}
      <div class="buttons"><button class="main" id="done" @click=${() => this.close()}>${app.t("close")}</button></div>`;
  }
}
