// The reader's own row, which stays at the bottom of the window.
import { html, nothing, type TemplateResult } from "lit";
import { toProblem, type UserScore } from "./api.ts";
import type { App } from "./app.ts";
import { avatar, movement, name, rank } from "./parts.ts";

const AGAIN_MS = 2_000; // between two reads

export class Me {
  private score: UserScore | undefined;
  private of = "";
  private changes = -1;
  private readAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly app: App) {}

  /** Reads the reader's entry again after a change of the ranking. */
  update(): void {
    const { app } = this, { ranking, me } = app, of = JSON.stringify([me, ranking.subject]);
    if (this.of !== of) [this.of, this.score, this.changes, this.readAt] = [of, undefined, -1, 0];
    if (!me || this.changes === ranking.changes || this.timer) return;
    this.timer = setTimeout(() => { this.timer = undefined; void this.read(); }, Math.max(0, this.readAt + AGAIN_MS - Date.now()));
  }

  private async read(): Promise<void> {
    const { app, of } = this, { ranking, me } = app;
    if (!me || !ranking.top) return;
    [this.readAt, this.changes] = [Date.now(), ranking.changes];
    try {
      const score = await app.client.user({ ...ranking.subject!, season: ranking.top.season }, me, { neighbors: 1 });
      if (of === this.of) this.score = score;
    } catch (error) {
      if (of === this.of && toProblem(error).kind === "user") this.score = undefined;
    }
    app.requestUpdate();
  }

  render(): TemplateResult | typeof nothing {
    const { app, score } = this, { ranking, format, t } = app;
    if (app.me) this.update();
    if (!score || score.user_id !== app.me || !ranking.board || score.score === undefined) return nothing;
    const above = score.neighbors[score.neighbors.findIndex((n) => n.user_id === score.user_id) - 1], gap = above && Math.abs(above.score - score.score);
    return html`<a class="me" href=${app.link(score as typeof score & { score: number })} aria-label=${t("yourRank", { rank: score.rank ?? 0 })}>
      ${rank(score as typeof score & { score: number }, format)}${movement(ranking, score as typeof score & { score: number }, format)}${avatar(score)}
      <span class="who">${name(score)}<span class="ties">${gap && above.rank !== undefined
        ? t("toRank", { gap: format.scoreWithUnit(ranking.board, gap), rank: above.rank }) : t("you")}</span></span>
      <span class="score">${format.score(ranking.board, score.score)}</span></a>`;
  }
}
