// Beside the list: the distribution of scores, the scores of the best few percent, and what the arrows mean.
import { html, nothing, type TemplateResult } from "lit";
import type { App } from "./app.ts";
import { formatLink } from "./link.ts";
import { VISIT_MS } from "./movement.ts";
import { histogram } from "./parts.ts";

const PERCENTS = [1, 10, 25, 50]; // shares of the players at the top

export function aside(app: App): TemplateResult | typeof nothing {
  const { ranking, format, t } = app, { stats } = app.overview, board = ranking.board!;
  const since = ranking.baseline ? html`<p class="legend"><span class="move up">▲</span> <span class="move down">▼</span> ${
    Date.now() - ranking.baseline.at < VISIT_MS ? t("arrowsNow") : t("arrowsSince", { when: format.ago(ranking.baseline.at) })}</p>` : nothing;
  if (!stats || stats.histogram.length < 2) return since;
  const marks = PERCENTS.flatMap((percent) => {
    const score = stats.percentiles.find((p) => p.percentile === 100 - percent)?.score, players = (stats.total * percent) / 100;
    return score === undefined || players < 1 ? [] : [{ percent, score, position: Math.ceil(players) }];
  });
  return html`<section class="panel"><h2>${t("distribution")}</h2>${histogram(stats, board, format)}
    <table><caption class="hidden">${t("topShares")}</caption><tbody>${marks.map((m) => html`<tr><th scope="row"><a href=${formatLink({ ...app.view, user: "", rank: m.position })}>${
      t("topPercent", { percent: format.percent(m.percent) })}</a></th><td>${format.score(board, m.score)}</td></tr>`)}</tbody></table></section>${since}`;
}
