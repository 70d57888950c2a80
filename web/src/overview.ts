// The head of a ranking: title, season, countdown, figures, and notices about its state.
import { html, nothing, type TemplateResult } from "lit";
import type { Stats } from "./api.ts";
import type { App } from "./app.ts";
import { isTime } from "./format.ts";
import type { Key } from "./text.ts";

const AGAIN_MS = 10_000; // between two reads of the statistics
const BUCKETS = 32;

export class Overview {
  stats: Stats | undefined;
  private of: unknown;
  private changes = -1;
  private readAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly app: App) {}

  /** Reads the statistics again after changes. */
  update(): void {
    const { ranking } = this.app;
    if (this.of !== ranking.subject) [this.of, this.stats, this.changes, this.readAt] = [ranking.subject, undefined, -1, 0];
    if (!ranking.top?.total || this.changes === ranking.changes || this.timer || document.hidden) return;
    this.timer = setTimeout(() => { this.timer = undefined; void this.read(); }, Math.max(0, this.readAt + AGAIN_MS - Date.now()));
  }

  private async read(): Promise<void> {
    const { app, of } = this, { ranking } = app;
    if (!ranking.top) return;
    [this.readAt, this.changes] = [Date.now(), ranking.changes];
    const stats = await app.client.stats({ ...ranking.subject!, season: ranking.top.season }, { buckets: BUCKETS }).catch(() => undefined);
    if (of !== this.of || !stats) return;
    this.stats = stats;
    app.requestUpdate();
  }

  render(): TemplateResult | typeof nothing {
    const { app } = this, { ranking, format, t } = app, { board, season, top } = ranking;
    if (!board) return html`<div class="hero"><h1 class="bone">&nbsp;</h1></div>`;
    const rule = [t(board.drop_worst ? "policyDropWorst" : ruleOf(board.policy, board.unit), { k: board.k ?? board.drop_worst ?? 1 }), t(board.order === "LOWER_FIRST" ? "lowerFirst" : "higherFirst")];
    return html`<div class="hero"><div class="title"><h1>${board.title || board.board_id}</h1><p>${rule.join(" · ")}</p></div>
      ${top ? html`<dl class="figures">
        ${top.total === undefined ? nothing : html`<div><dt>${t("players")}</dt><dd>${format.number(top.total)}</dd></div>`}
        ${season && board.season?.schedule !== "NONE" ? html`<div><dt>${t("season")}</dt><dd><bdi>${format.season(board, season)}</bdi></dd></div>` : nothing}
        ${top.division ? html`<div><dt>${t("division")}</dt><dd><bdi>${format.division(top.division)}</bdi></dd></div>` : nothing}
        ${this.when()}</dl>` : nothing}</div>`;
  }

  /** When the season ends, ended or begins. */
  private when(): TemplateResult | typeof nothing {
    const { ranking, format, t } = this.app, { season } = ranking, left = ranking.remaining(), end = season?.ended_at ?? season?.end;
    const figure = (key: Key, text: string, at: string) => html`<div><dt>${t(key)}</dt><dd class="when"><time datetime=${at} title=${format.moment(at)}>${text}</time></dd></div>`;
    if (left !== undefined) {
      return season!.status === "upcoming" ? figure("beginsIn", format.remaining(left / 1000), season!.start!) : figure("endsIn", format.remaining(left / 1000), season!.end!);
    }
    return end && ranking.status !== "live" && ranking.status !== "connecting" ? figure("ended", format.lastDay(end), end) : nothing;
  }

  notices(): TemplateResult | typeof nothing {
    const { ranking, format, t } = this.app, { top, season } = ranking;
    if (!top) return nothing;
    const texts: string[] = [];
    if (ranking.connection === "reconnecting") texts.push(t(navigator.onLine ? "lostServer" : "lostNetwork", { at: format.clock(new Date(ranking.shownAt).toISOString()) }));
    if (top.degraded) texts.push(t("degraded"));
    if (top.filling || season?.filling) texts.push(t("filling"));
    if (ranking.status === "grace" && season?.closes_at) texts.push(t("graceUntil", { at: format.moment(season.closes_at) }));
    if (ranking.status === "closed") texts.push(t("closedSoonFinal"));
    return texts.length ? html`<div class="notices">${texts.map((text) => html`<p class="notice" role="status">${text}</p>`)}</div>` : nothing;
  }

  /** On a narrow window, the statistics are behind a line that opens. */
  details(content: () => TemplateResult | typeof nothing): TemplateResult | typeof nothing {
    return this.stats && this.stats.total > 3 ? html`<details class="panel"><summary>${this.app.t("statistics")}</summary>${content()}</details>` : nothing;
  }
}

function ruleOf(policy: string, unit: string): Key {
  const time = isTime({ unit } as Parameters<typeof isTime>[0]);
  const rules: Record<string, Key> = { SUM: "policySum", LATEST: "policyLatest", DECAY: "policyDecay", COUNT: "policyCount", FIRST: "policyFirst", AVERAGE: "policyAverage", BEST_K: "policyBestK" };
  return rules[policy] ?? (time ? "policyBestTime" : "policyBest");
}
