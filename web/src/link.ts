// The fragment of the page's address names what it shows, so that people can share it and go back.
import type { Method, Subject } from "./api.ts";

export interface View extends Subject {
  /** The user whose card is open, or "". */
  user: string;
  /** The position to which the list scrolls, or 0. */
  rank: number;
}

const methods: readonly string[] = ["competition", "dense", "ordinal"];

/** An address of a view; the board is "" if the address names none. */
export function parseLink(fragment: string): View {
  const q = new URLSearchParams(fragment.replace(/^#/, "")), method = q.get("method") ?? "", rank = Number(q.get("rank"));
  return {
    board: q.get("board") ?? "", season: q.get("season") ?? "", division: q.get("division") ?? "",
    method: (methods.includes(method) ? method : "competition") as Method, user: q.get("user") ?? "", rank: Number.isSafeInteger(rank) && rank > 0 ? rank : 0,
  };
}

export function formatLink(view: Partial<View>): string {
  const q = new URLSearchParams();
  for (const name of ["board", "season", "division", "method", "user", "rank"] as const) {
    const value = view[name];
    if (value && value !== "competition") q.set(name, String(value));
  }
  return "#" + q;
}
