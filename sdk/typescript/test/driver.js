// Makes the calls that the suite of test/clients sends: a JSON object per line.
import { createInterface } from "node:readline";
import { Client, LeaderboardError } from "../dist/client.js";

// Integers beyond 2^53 become bigint, which JSON.parse would round.
const big = "bigint:";
const parse = (line) => JSON.parse(line.replace(/([:[,])(-?\d{16,})(?=[,\]}])/g, `$1"${big}$2"`),
  (_, v) => (typeof v === "string" && v.startsWith(big) ? BigInt(v.slice(big.length)) : v));

async function collect(sequence, take) {
  const values = [];
  for await (const v of sequence) if (values.push(v) === take) break;
  return values;
}

const calls = {
  submit: (c, b, a) => b.submit(a.result, a.query),
  submitBatch: (c, b, a) => b.submitBatch(a.results, a.query),
  submitResults: (c, b, a) => c.submitBatch(a.results, a.query),
  waitApplied: (c, b, a) => b.waitApplied({ user_id: a.user, match_id: a.match, season: "", revision: 0 }),
  top: (c, b, a) => b.top(a.query),
  entries: (c, b, a) => collect(b.entries(a.query), a.take),
  search: (c, b, a) => collect(b.search(a.query), a.take),
  seasons: (c, b, a) => collect(b.seasons(), a.take),
  results: (c, b, a) => collect(b.results(a.user, a.query), a.take),
  watch: (c, b, a) => collect(b.watch(a.query), a.take),
  user: (c, b, a) => b.user(a.user, a.query),
  lookup: (c, b, a) => b.lookup(a.body),
  stats: (c, b, a) => b.stats(a.query),
  season: (c, b, a) => b.season(a.id, a.query),
  result: (c, b, a) => b.result(a.user, a.match, a.query),
  correct: (c, b, a) => b.correct(a.user, a.match, a.body),
  retract: (c, b, a) => b.retract(a.user, a.match, a.body),
  boards: (c) => c.boards(),
  board: (c, b) => b.settings(),
  userScores: (c, b, a) => c.userScores(a.user, a.query),
  profile: (c, b, a) => c.profile(a.user),
  putProfile: (c, b, a) => c.putProfile(a.user, a.body),
  call: (c, b, a) => c.call("POST", a.id, a.body),
};

async function run({ op, url, key, tokens, args }) {
  const waits = [];
  let now = Date.now();
  const clock = { now: () => now, sleep: async (ms) => { now += ms; waits.push(Math.floor(ms)); } };
  const token = tokens && (() => (tokens.length > 1 ? tokens.shift() : tokens[0]));
  try {
    const c = new Client(url, { key, token, clock });
    return { value: await calls[op](c, op === "boards" ? undefined : c.board(args.board), args), waits };
  } catch (e) {
    if (!(e instanceof LeaderboardError)) return { error: { message: String(e.message) }, waits };
    return { error: { status: e.status, reason: e.reason, message: e.message, fields: e.fields, outcome: e.outcome, result: e.result,
      retry_after: e.retryAfter / 1000, request_id: e.requestId !== undefined }, waits };
  }
}

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await run(parse(line))));
