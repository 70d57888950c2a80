import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ConnectionError, prepare } from "../dist/client.js";

const answer = (body, status = 200) => new Response(JSON.stringify(body), { status });
const client = (fetch, options = {}) => new Client("http://scores.example/", { fetch, ...options });
const never = async () => { throw new Error("the client sent a request"); };

test("addresses", () => {
  for (const address of ["", "scores.example", "ftp://scores.example", "https://scores.example/?a=b"]) assert.throws(() => new Client(address), TypeError);
});

test("inputs that JSON cannot hold", async () => {
  const board = client(never).board("b");
  for (const result of [
    { user_id: "ann", score: 2 ** 53 }, { user_id: "ann", score: 1.5 }, { user_id: "ann", points: NaN }, { user_id: "ann", tie_breakers: [1, 1e300] },
    { user_id: "ann", metadata: { speed: Infinity } }, { user_id: "ann", metadata: { deep: [{ x: NaN }] } }, { user_id: "ann", revision: -(2 ** 60) },
  ]) {
    await assert.rejects(board.submit(result), /user "ann"/);
    await assert.rejects(board.submitBatch([result]), /user "ann"/);
  }
  await assert.rejects(board.top({ min_score: 2 ** 53 }), /min_score/);
  await assert.rejects(async () => board.user("\ud800"), /is not an id/);
});

test("a bigint reaches the server exactly", async () => {
  let body;
  await client(async (_, init) => { body = init.body; return answer({ success: true }); }).board("b").submit({ user_id: "ann", score: 9007199254740992n, tie_breakers: [-9007199254740992n] });
  assert.match(body, /"score":"9007199254740992","tie_breakers":\["-9007199254740992"\]/);
});

const countValues = (v) => (v === null || typeof v !== "object" ? 1 : Object.values(v).reduce((n, e) => n + countValues(e), 1));

for (const [name, metadata] of Object.entries({
  results: undefined, bytes: { pad: "é".repeat(2000) }, values: { list: Array(600).fill(null) }, commas: { pad: ",".repeat(3000) },
})) test("batches are within all limits: " + name, async () => {
  let requests = 0;
  const n = metadata ? 4500 : 5001;
  const outcomes = await client(async (_, { body }) => {
    const { results } = JSON.parse(body);
    requests++;
    assert.ok(results.length <= 5000 && Buffer.byteLength(body) <= 16 << 20 && countValues({ results }) <= 500_000);
    return answer({ outcomes: results.map((r) => ({ status: "APPLIED", user_id: r.user_id })) });
  }).board("b").submitBatch(Array.from({ length: n }, (_, i) => ({ user_id: "u" + i, points: 1, metadata })));
  assert.ok(requests > 1 && outcomes.every((o, i) => o.user_id === "u" + i) && outcomes.length === n);
});

test("prepared results", () => {
  const r = prepare({ user_id: "ann" });
  assert.ok(r.match_id.length === 32 && r.match_id !== prepare({ user_id: "ann" }).match_id && !Number.isNaN(Date.parse(r.achieved_at)));
  assert.deepEqual(prepare(r), r);
  assert.equal(prepare({ user_id: "ann", season: "2026" }).achieved_at, undefined);
});

test("calls at the same time share a new token", async () => {
  let asked = 0;
  const c = client(async (_, { headers }) => (headers.Authorization === "Bearer token-2" ? answer({ data: { count: 1 } }) : answer({ message: "expired" }, 401)),
    { token: async () => "token-" + ++asked });
  await Promise.all(Array.from({ length: 20 }, () => c.board("b").top()));
  assert.equal(asked, 2);
});

test("a callback that fails is asked again", async () => {
  let asked = 0;
  const c = client(async () => answer({ data: {} }), { token: () => { if (asked++ === 0) throw new Error("no identity provider"); return "t"; } });
  await assert.rejects(c.board("b").top(), /no identity provider/);
  await c.board("b").top();
});

test("an aborted call ends with the reason", async () => {
  const stop = new AbortController();
  const c = client(async () => { stop.abort(new Error("enough")); throw new TypeError("refused"); });
  await assert.rejects(c.board("b").top({}, stop.signal), /enough/);
  const waiting = new AbortController();
  const slow = client(async () => { setTimeout(() => waiting.abort(new Error("waited")), 0); return answer({ message: "busy" }, 503); });
  await assert.rejects(slow.board("b").top({}, waiting.signal), /waited/);
});

test("without retries, the first error counts", async () => {
  let attempts = 0;
  await assert.rejects(client(async () => { attempts++; throw new TypeError("refused"); }, { retryFor: -1 }).board("b").top(), ConnectionError);
  assert.equal(attempts, 1);
});

// A stream that sends parts of texts, and then nothing.
const silent = (signal, parts) => new Response(new ReadableStream({
  start(control) {
    for (const part of parts) control.enqueue(new TextEncoder().encode(part));
    signal.addEventListener("abort", () => control.error(signal.reason));
  },
}));

test("a silent stream reconnects", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let connections = 0;
  const c = client(async (_, { signal }) => silent(signal, [`id: 1\r\nda`, `ta: {"count":${++connections}}\r\n`, "\r\n"]),
    { clock: { now: () => 0, sleep: async () => {} } });
  const counts = [];
  for await (const top of c.board("b").watch()) {
    if (counts.push(top.count) === 3) break;
    t.mock.timers.tick(60_000); // a slow caller is not a silent server
    setImmediate(() => t.mock.timers.tick(20_000));
  }
  assert.deepEqual(counts, [1, 2, 3]);
});

test("an aborted watch ends, and a left watch closes its stream", async () => {
  const stop = new AbortController();
  const aborted = client(async (_, { signal }) => silent(signal, ['data: {"count":1}\n\n'])).board("b").watch({}, stop.signal);
  await aborted.next();
  setImmediate(() => stop.abort(new Error("enough")));
  await assert.rejects(aborted.next(), /enough/);
  let closed = false;
  for await (const _ of client(async (_, { signal }) => { signal.addEventListener("abort", () => { closed = true; }); return silent(signal, ["data: {}\n\n"]); }).board("b").watch()) break;
  assert.ok(closed);
});
