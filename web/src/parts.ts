// Parts that the page and the embedded element share.
import { html, nothing, svg, type TemplateResult } from "lit";
import { nameOf, type Board, type Entry, type Leaderboard, type Profile, type Stats } from "./api.ts";
import { spaced, type Format } from "./format.ts";
import type { Ranking, Status } from "./ranking.ts";
import type { Key } from "./text.ts";

/** A number from 0 to 359 that follows from a text. */
function hue(text: string): number {
  let h = 2166136261;
  for (const c of text) h = Math.imul(h ^ c.codePointAt(0)!, 16777619) >>> 0;
  return h % 360;
}

function initials(name: string): string {
  const words = name.split(/[\s._-]+/u).filter(Boolean), segmenter = new Intl.Segmenter();
  const first = (word: string, n: number) => [...segmenter.segment(word)].slice(0, n).map((s) => s.segment).join("");
  return (words.length > 1 ? first(words[0]!, 1) + first(words.at(-1)!, 1) : first(words[0] ?? "?", 2)).toUpperCase();
}

/** A picture of a user, or the initials. Only pictures over HTTPS load. */
export function avatar(e: { user_id: string; profile?: Profile }): TemplateResult {
  const url = e.profile?.avatar_url ?? "", name = nameOf(e);
  return html`<span class="avatar" aria-hidden="true" .style=${`--hue:${hue(e.user_id)}`}>${initials(name)}${url.startsWith("https://")
    ? html`<img alt="" loading="lazy" referrerpolicy="no-referrer" src=${url} @error=${(event: Event) => (event.target as Element).remove()}>` : nothing}</span>`;
}

/** The flag of a country by its ISO 3166-1 code, and the name for those who do not see it. */
export function flag(profile: Profile | undefined, format: Format): TemplateResult | typeof nothing {
  const code = profile?.country?.toUpperCase() ?? "";
  if (!/^[A-Z]{2}$/.test(code)) return nothing;
  const name = new Intl.DisplayNames(format.language.locale, { type: "region" }).of(code) ?? code;
  return html`<span class="flag" role="img" aria-label=${name} title=${name}>${String.fromCodePoint(...[...code].map((c) => 0x1f1a5 + c.charCodeAt(0)))}</span>`;
}

/** The user's name, isolated because its direction may differ from that of the page. */
export const name = (e: { user_id: string; profile?: Profile }): TemplateResult => html`<bdi class="name" title=${e.user_id}>${nameOf(e)}</bdi>`;

/** An arrow with the number of places that a user has moved. */
export function movement(ranking: Ranking, e: Entry, format: Format): TemplateResult | typeof nothing {
  const places = ranking.movement(e.user_id, e.rank), t = format.language.t;
  if (!places) return html`<span class="move"></span>`;
  const text = t(places > 0 ? "movedUp" : "movedDown", { n: Math.abs(places) });
  return html`<span class="move ${places > 0 ? "up" : "down"}" title=${text}><span aria-hidden="true">${places > 0 ? "▲" : "▼"}${format.number(Math.abs(places))}</span><span
    class="hidden">${text}</span></span>`;
}

/** The rank or, if there is none, the usual abbreviation of the status. */
export function place(e: { rank?: number; status?: string }, format: Format): string {
  if (e.rank !== undefined) return format.number(e.rank);
  return e.status === "HORS_CONCOURS" ? "HC" : e.status && e.status !== "TOO_FEW_RESULTS" ? e.status : "–";
}

export const rank = (e: Entry, format: Format): TemplateResult => html`<span class="rank">${place(e, format)}</span>`;

/** The number of entries on the podium. */
export const stepsOf = (top: Leaderboard): number =>
  top.leaderboard.length >= 3 && !top.degraded && top.leaderboard.slice(0, 3).every((e) => e.rank !== undefined) ? 3 : 0;

/** The tie-breakers that decide between an entry and an adjacent entry with the same score. */
export function ties(board: Board, entry: Entry, beside: (Entry | undefined)[], format: Format): string {
  const names = board.tie_breakers ?? [], value = (e: Entry, k: number) => e.tie_breakers?.[k] ?? 0;
  let depth = 0;
  for (const other of beside) {
    if (other && other.score === entry.score) depth = Math.max(depth, 1 + names.findIndex((_, k) => value(other, k) !== value(entry, k)));
  }
  return names.slice(0, depth).map((t, k) => `${spaced(t.name)} ${format.number(value(entry, k))}`).join(" · ");
}

/** The first three entries, on steps. */
export function podium(ranking: Ranking, format: Format, link: (e: Entry) => TemplateResult | string): TemplateResult {
  const { board, top } = ranking;
  return html`<ol class="podium" part="podium">${top!.leaderboard.slice(0, 3).map((e, i) => html`
    <li class="step place${i + 1}"><a href=${link(e)} part="podium-step">
      <span class="medal">${rank(e, format)}</span>${avatar(e)}
      <span class="who">${flag(e.profile, format)}${name(e)}</span>
      <span class="score">${format.score(board!, e.score)}</span>
      ${movement(ranking, e, format)}
    </a></li>`)}</ol>`;
}

const statusTexts: Record<Status, Key> = {
  loading: "loading", live: "live", connecting: "connecting", upcoming: "upcoming", grace: "grace", closed: "closed", final: "final", problem: "stopped",
};

/** The status of a ranking in words. */
export function statusText(ranking: Ranking, format: Format): string {
  const { t } = format.language, { status } = ranking;
  if (ranking.connection === "reconnecting") return t(navigator.onLine ? "reconnecting" : "offline");
  return t(statusTexts[status]);
}

export const statusBadge = (ranking: Ranking, format: Format): TemplateResult =>
  html`<span class="status ${ranking.connection === "reconnecting" ? "broken" : ranking.status}" part="status" role="status">${statusText(ranking, format)}</span>`;

/** The distribution of scores as bars, with a mark at a score. */
export function histogram(stats: Stats, board: Board, format: Format, mine?: number): TemplateResult {
  const bars = stats.histogram, most = Math.max(1, ...bars.map((b) => b.count)), width = 100 / Math.max(1, bars.length);
  const least = bars[0]?.lower ?? 0, greatest = bars.at(-1)?.upper ?? 0, label = format.language.t("distribution");
  const at = mine === undefined ? -1 : Math.min(Math.max((100 * (mine - least)) / Math.max(1, greatest - least), 0), 100);
  return html`<figure class="histogram"><svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label=${label}>${bars.map((b, i) => {
    const height = b.count ? Math.max(1, (38 * b.count) / most) : 0;
    return svg`<rect class="bar" x=${i * width + width * 0.08} width=${width * 0.84} y=${40 - height} height=${height}><title>${
      `${format.score(board, b.lower)} – ${format.score(board, b.upper)}: ${format.number(b.count)}`}</title></rect>`;
  })}${at < 0 ? nothing : svg`<rect class="here" x=${at - 0.4} width="0.8" y="0" height="40"></rect>`}</svg><figcaption><span>${
    format.score(board, least)}</span><span>${label}</span><span>${format.score(board, greatest)}</span></figcaption></figure>`;
}
