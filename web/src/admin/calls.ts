// The calls of the page for administrators, and their errors in words.
import { Client, Problem, type Kind, type Query } from "../api.ts";
import type { AdminKey } from "./app.ts";
import type { Act, ListActsResponse } from "./types.gen.ts";

export interface Answer<T> { value: T; requestId: string }
export type Method = "POST" | "PATCH" | "PUT" | "DELETE";

/** A part of a verification: see VerifyResponse. */
export interface Finding {
  progress?: { board: string; season: string; done: number };
  difference?: { kind: string; board: string; season: string; division: string; user_id: string; detail: string; repaired: boolean };
  summary?: { seasons: number; users: number; results: number; differences: number; repaired: number };
  error?: { message: string };
}

const RECORD_TRIES = 4, RECORD_PAUSE_MS = 500;

export class Calls extends Client {
  get = <T>(path: string, query: Query = {}): Promise<T> => this.json<T>("", path, query);

  async send<T>(method: Method, path: string, body?: unknown, query: Query = {}): Promise<Answer<T>> {
    const answer = await this.request("", path, query, undefined, { method, body: body === undefined ? undefined : JSON.stringify(body) });
    return { value: (await answer.json()) as T, requestId: answer.headers.get("X-Request-Id") ?? "" };
  }

  /** Compares, and with repair also repairs, a board and a season; "" is all of them. */
  async verify(board: string, season: string, repair: boolean, found: (finding: Finding) => void): Promise<Answer<void>> {
    const body = JSON.stringify({ ...(board && { board }), ...(season && { season }), repair });
    const answer = await this.request("", "/v1/admin/verify", {}, undefined, { method: "POST", body });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "", ended = false;
    const read = (line: string) => {
      if (!line.trim()) return;
      const finding = JSON.parse(line) as Finding;
      if (finding.error) throw new Problem("other", "", finding.error.message);
      ended ||= finding.summary !== undefined;
      found(finding);
    };
    for (;;) {
      const { done, value } = await reader.read().catch((error: unknown) => { throw new Problem("network", "", String(error)); });
      const lines = (text + (value ?? "")).split("\n");
      text = done ? "" : lines.pop()!;
      lines.forEach(read);
      if (done && !ended) throw new Problem("network", "", "");
      if (done) return { value: undefined, requestId: answer.headers.get("X-Request-Id") ?? "" };
    }
  }

  /** Finds the records of an act. A server writes them before it answers, but another one may read them a moment later. */
  async record(query: Query, requestId: string): Promise<Act[]> {
    for (let i = 0; requestId && i < RECORD_TRIES; i++) {
      if (i) await new Promise((resolve) => setTimeout(resolve, RECORD_PAUSE_MS));
      const { acts } = await this.get<ListActsResponse>("/v1/audit", { ...query, limit: 50 });
      const mine = acts.filter((a) => a.request_id === requestId && a.completed_at);
      if (mine.length) return mine;
    }
    return [];
  }
}

export const userPath = (user: string): string => "/v1/users/" + encodeURIComponent(user);

/** What is wrong, and what to do next, for a read and for an act. */
export function words(problem: Problem, acting: boolean): readonly [title: AdminKey, text: AdminKey] {
  switch (problem.reason) {
    case "REVISION_CHANGED": return ["changedTitle", "changedText"];
    case "MATCHES_FILLING": return ["waitTitle", "matchesFillingText"];
    case "LAST_ADMIN_KEY": return ["lastKeyTitle", "lastKeyText"];
    case "BOARD_EXISTS": return ["existsTitle", "existsText"];
    case "BOARD_DENIED": return ["deniedTitle", "deniedText"];
    case "MATCH_NOT_FOUND": case "RESULT_NOT_FOUND": case "API_KEY_NOT_FOUND": case "PROFILE_NOT_FOUND": case "DEAD_LETTER_NOT_FOUND": return ["goneTitle", "goneText"];
    case "TIMEOUT": if (acting) return ["unknownTitle", "unknownText"];
  }
  const texts: Record<Kind, readonly [AdminKey, AdminKey]> = {
    network: acting ? ["unknownTitle", "unknownText"] : ["noNetworkTitle", "noNetworkText"],
    key: ["keyGoneTitle", "keyGoneText"], forbidden: ["notAllowedTitle", "notAllowedText"], busy: ["waitTitle", "waitText"],
    unavailable: acting ? ["unknownTitle", "unknownText"] : ["notReadyTitle", "notReadyText"], invalid: ["refusedTitle", "refusedText"],
    board: ["goneTitle", "goneText"], season: ["goneTitle", "goneText"], user: ["goneTitle", "goneText"], other: ["refusedTitle", "refusedText"],
  };
  return texts[problem.kind];
}
