// A program over generated types. Its errors of types are what the description must prevent.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

const [url, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

function check(ok: boolean, text: string): void {
  if (!ok) throw new Error(text);
}

const result: components["schemas"]["ResultInput"] = { user_id: "ts", match_id: "m1", points: 7 };
const submitted = await client.POST("/v1/scores", { body: result });
check(submitted.data?.success === true && submitted.data.new_score === 7, `submit: ${JSON.stringify(submitted)}`);

const method: "competition" | "dense" | "ordinal" | undefined = "dense";
const top = await client.GET("/v1/boards/{board}/scores", { params: { path: { board: "default" }, query: { method, limit: 5 } } });
const scores: number[] = top.data!.data!.leaderboard.map((entry) => entry.score);
check(scores.includes(7), `top: ${JSON.stringify(top)}`);

const missing = await client.GET("/v1/scores/{user_id}", { params: { path: { user_id: "nobody" } } });
const reasons = (missing.error?.details ?? []).flatMap((d) => (d["@type"] === "type.googleapis.com/google.rpc.ErrorInfo" ? [d.reason] : []));
const expected: components["schemas"]["ErrorReason"] = "ENTRY_NOT_FOUND";
check(reasons.includes(expected), `missing: ${JSON.stringify(missing)}`);

export const wrong = [
  // @ts-expect-error user_id is required
  () => client.POST("/v1/scores", { body: {} }),
  // @ts-expect-error no such method
  () => client.GET("/v1/scores", { params: { query: { method: "olympic" } } }),
  // @ts-expect-error no such field
  (): components["schemas"]["ResultInput"] => ({ user_id: "u", score_typo: 1 }),
  // @ts-expect-error no such reason
  (): components["schemas"]["ErrorReason"] => "NO_REASON",
];
console.log("ok");
