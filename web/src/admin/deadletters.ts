// Dead letters: messages in Kafka that a consumer could not apply. List, show, and send again.
import { html, nothing } from "lit";
import { toProblem } from "../api.ts";
import { instant, type Act, type Values } from "./act.ts";
import { to, type Admin, type Section } from "./app.ts";
import { facts, flatten, Load, moment, table, theirs, type Part } from "./show.ts";
import type { DeadLetter, ListDeadLettersResponse, ReplayDeadLettersResponse } from "./types.gen.ts";

const causes = ["form", "invalid", "board", "season", "fetch", "damaged"];
const filters = ["cause", "user_id", "since"] as const;
const PAGE = 100; // also the most that one call sends again

export class DeadLetters implements Section {
  private query: Record<string, string> = {};
  private id = "";
  private readonly list: Load<ListDeadLettersResponse | "none">;
  private readonly one: Load<DeadLetter>;

  constructor(private readonly app: Admin) {
    [this.list, this.one] = [new Load(app), new Load(app)];
  }

  open(route: URLSearchParams): void {
    this.query = Object.fromEntries(filters.map((name) => [name, route.get(name) ?? ""]));
    this.id = route.get("id") ?? "";
    this.list.clear();
    this.one.clear();
    this.reload();
  }

  private reload(): void {
    if (this.app.limited) return;
    if (this.id) void this.one.read(() => this.app.client.get("/v1/dead-letters/" + encodeURIComponent(this.id)));
    else void this.list.read(() => this.read("").catch((error: unknown) => {
      if (toProblem(error).reason === "UNSUPPORTED") return "none"; // the embedded engine
      throw error;
    }));
  }

  private read = (token: string): Promise<ListDeadLettersResponse> =>
    this.app.client.get("/v1/dead-letters", { ...this.query, since: instant(this.query.since), limit: PAGE, page_token: token });

  render(): Part {
    const { app, query } = this, { t } = app;
    if (app.limited) return html`<h1>${t("deadLetters")}</h1><p class="quiet">${t("deadLettersNeedAll")}</p>`;
    if (this.id) return this.single();
    const submit = (e: Event) => {
      e.preventDefault();
      app.go(to("dead-letters", Object.fromEntries([...new FormData(e.target as HTMLFormElement)].map(([name, value]) => [name, String(value).trim()]))));
    };
    return html`<h1>${t("deadLetters")}</h1><p class="quiet">${t("deadLettersText")}</p>
      <form class="filters panel" role="search" @submit=${submit}>
        <label class="field"><span>${t("cause")}</span><select id="cause" name="cause"><option value="">${t("everyCause")}</option>${causes.map((c) =>
          html`<option value=${c} .selected=${c === query.cause}>${c}</option>`)}</select></label>
        <label class="field"><span>${t("player")}</span><input id="dead-user" name="user_id" maxlength="128" autocomplete="off" dir="auto" .value=${query.user_id ?? ""}></label>
        <label class="field"><span>${t("since")}</span><input id="dead-since" name="since" type="datetime-local" .value=${query.since ?? ""}></label>
        <button class="main">${t("filter")}</button></form>
      ${this.list.show((v) => (v === "none" ? html`<p class="quiet">${t("noKafka")}</p>` : this.listed(v)))}`;
  }

  private listed(v: ListDeadLettersResponse): Part {
    const { app } = this, { t } = app, replayable = v.dead_letters.filter((d) => d.replayable).slice(0, PAGE);
    return html`${v.dead_letters.length ? html`${replayable.length > 1 ? html`<div class="buttons start"><button class="replay-all" @click=${() => app.acts.open(this.replay(replayable))}>
        ${t("replayListed", { n: replayable.length })}</button></div>` : nothing}${this.rows(v.dead_letters, true)}` : html`<p class="quiet">${t("noDeadLetters")}</p>`}
      ${v.next_page_token ? html`<button ?disabled=${this.list.busy} @click=${() => void this.list.read(async () => {
        const next = await this.read(v.next_page_token);
        return { ...next, dead_letters: [...v.dead_letters, ...next.dead_letters] };
      })}>${t("showMore")}</button>` : nothing}`;
  }

  private rows(list: readonly DeadLetter[], buttons: boolean): Part {
    const { app } = this, { t } = app;
    return table(t("deadLetters"), [t("time"), t("cause"), t("player"), t("board"), t("detail"), ...(buttons ? [t("action")] : [])], list.map((d) => [
      html`<a href=${to("dead-letters", { id: d.dead_letter_id })}>${moment(app, d.at)}</a> <small><code>${d.dead_letter_id}</code></small>`, html`<code>${d.cause}</code>`,
      theirs(d.user_id), theirs(d.board), theirs(d.detail), ...(buttons ? [this.button(d)] : [])]));
  }

  private button(d: DeadLetter): Part {
    const { app } = this;
    return d.replayable ? html`<button class="replay" @click=${() => app.acts.open(this.replay([d]))}>${app.t("replay")}</button>` : html`<span class="badge bad">${app.t("notReplayable")}</span>`;
  }

  private single(): Part {
    const { app } = this, { t } = app;
    return html`<p><a href=${to("dead-letters")}>${t("deadLetters")}</a></p><h1><bdi>${this.id}</bdi></h1>${this.one.show((d) => html`
      ${facts([[t("time"), moment(app, d.at)], [t("cause"), html`<code>${d.cause}</code>`], [t("detail"), theirs(d.detail)], [t("cure"), theirs(d.cure)],
        [t("origin"), theirs(`${d.origin_topic} ${d.origin_partition}:${d.origin_offset}`)], [t("sent"), moment(app, d.origin_at)]])}
      <div class="buttons start">${this.button(d)}</div><h2>${t("message")}</h2>
      ${d.message ? table(t("message"), [t("field"), t("value")], [...flatten(d.message)].map(([path, value]) => [html`<code>${path}</code>`, theirs(value)]))
        : html`<p class="quiet">${t("notDecodable")}</p><p class="detail"><code>${d.message_bytes}</code></p>`}`)}`;
  }

  private replay(list: readonly DeadLetter[]): Act {
    const { app } = this, { t } = app;
    const send = (v: Values, dryRun: boolean) => app.client.send<ReplayDeadLettersResponse>("POST", "/v1/dead-letters:replay",
      { dead_letter_ids: list.map((d) => d.dead_letter_id), reason: v.reason, ...(dryRun && { dry_run: true }) });
    return {
      title: "replay", verb: "replay", subject: list.length === 1 ? list[0]!.dead_letter_id : "", records: () => ({ action: "dead_letter" }), done: () => this.reload(),
      fields: [{ name: "reason", label: "reason", hint: "reasonHint" }],
      preview: async (v) => {
        const { replayed, skipped } = (await send(v, true)).value;
        return html`<p>${t("replayText")}</p>${replayed.length ? this.rows(replayed, false) : nothing}${skipped.length ? html`<h3>${t("notReplayable")}</h3>${this.rows(skipped, false)}` : nothing}`;
      },
      run: (v) => send(v, false),
    };
  }
}
