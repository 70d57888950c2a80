// Movement since the reader's last visit: the browser keeps the ranks that it showed then.
import type { Leaderboard, Subject } from "./api.ts";

/** A view that is later than this is a new visit. */
export const VISIT_MS = 3_600_000;
const MAX_RANKINGS = 20;

interface Visit { at: number; ranks: Record<string, number> }

/** The ranks to compare with, and when they were shown. */
export interface Baseline { at: number; ranks: ReadonlyMap<string, number> }

const ranksOf = (top: Leaderboard): Record<string, number> =>
  Object.fromEntries(top.leaderboard.flatMap((e) => (e.rank === undefined ? [] : [[e.user_id, e.rank]])));

/** Returns the ranks of the last visit to a ranking, or those of top if there is none, and keeps those of top for the next visit. */
export function visit(server: string, subject: Subject, top: Leaderboard, now = Date.now()): Baseline {
  const name = "leaderboard.visits", id = JSON.stringify([server, subject.board, top.season, subject.division, subject.method]);
  const current: Visit = { at: now, ranks: ranksOf(top) };
  let last = current;
  try {
    const all = JSON.parse(localStorage.getItem(name) ?? "{}") as Record<string, [Visit, Visit]>;
    let [before, latest] = all[id] ?? [current, current];
    if (now - latest.at > VISIT_MS) [before, latest] = [latest, current];
    last = before;
    delete all[id];
    const kept = Object.entries(all).slice(1 - MAX_RANKINGS);
    localStorage.setItem(name, JSON.stringify(Object.fromEntries([...kept, [id, [before, latest]]])));
  } catch { /* the browser keeps nothing, or something else */ }
  return { at: last.at, ranks: new Map(Object.entries(last.ranks ?? {})) };
}
