"""Makes the calls that the suite of test/clients sends: a JSON object per line. The argument is sync or async."""

import asyncio
import json
import sys

from leaderboard_client import AsyncClient, Client, LeaderboardError

NAMES = {"submitBatch": "submit_batch", "waitApplied": "wait_applied", "userScores": "user_scores", "putProfile": "put_profile", "board": "settings"}
LISTS = ("entries", "search", "seasons", "results", "watch")


def arguments(op, args):
    query = [args["query"]] if "query" in args else []
    body = [args["body"]] if "body" in args else []
    match op:
        case "submit":
            return [args["result"], *query]
        case "submitBatch" | "submitResults":
            return [args["results"], *query]
        case "waitApplied":
            return [{"user_id": args["user"], "match_id": args["match"], "season": "", "revision": 0}]
        case "user" | "results" | "userScores" | "profile" | "putProfile":
            return [args["user"], *query, *body]
        case "season":
            return [args["id"], *query]
        case "result" | "correct" | "retract":
            return [args["user"], args["match"], *query, *body]
        case "call":
            return ["POST", args["id"], *body]
    return query + body


def method(client, op, args):
    if op == "submitResults":
        return client.submit_batch
    if op in ("boards", "userScores", "profile", "putProfile", "call"):
        return getattr(client, NAMES.get(op, op))
    return getattr(client.board(args["board"]), NAMES.get(op, op))


def run_sync(client, op, args):
    value = method(client, op, args)(*arguments(op, args))
    if op not in LISTS:
        return value
    values = []
    for v in value:
        values.append(v)
        if len(values) == args.get("take"):
            break
    return values


async def run_async(client, op, args):
    value = method(client, op, args)(*arguments(op, args))
    if op not in LISTS:
        return await value
    values = []
    async for v in value:
        values.append(v)
        if len(values) == args.get("take"):
            break
    return values


def run(asynchronous, request):
    now, waits, tokens = [0.0], [], request.get("tokens")

    def sleep(seconds):
        now[0] += seconds
        waits.append(int(seconds * 1000))

    def token(rejected):
        return tokens.pop(0) if len(tokens) > 1 else tokens[0]

    async def async_sleep(seconds):
        sleep(seconds)

    async def async_token(rejected):
        return token(rejected)

    async def call():
        async with AsyncClient(request["url"], key=request["key"], token=tokens and async_token) as client:
            client._now, client._sleep = lambda: now[0], async_sleep
            return await run_async(client, request["op"], request["args"])

    try:
        if asynchronous:
            return {"value": asyncio.run(call()), "waits": waits}
        with Client(request["url"], key=request["key"], token=tokens and token) as client:
            client._now, client._sleep = lambda: now[0], sleep
            return {"value": run_sync(client, request["op"], request["args"]), "waits": waits}
    except LeaderboardError as e:
        return {"error": {"status": e.status, "reason": e.reason, "message": str(e), "fields": e.fields, "outcome": e.outcome, "result": e.result,
                          "retry_after": int(e.retry_after), "request_id": e.request_id is not None}, "waits": waits}
    except Exception as e:
        return {"error": {"message": str(e)}, "waits": waits}


for line in sys.stdin:
    print(json.dumps(run(sys.argv[1] == "async", json.loads(line))), flush=True)
