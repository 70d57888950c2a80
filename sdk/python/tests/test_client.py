import asyncio
import json
import math
import threading
import unittest

import httpx

from leaderboard_client import AsyncClient, Client, ConnectionFailed, prepare
from leaderboard_client._core import Events


def client(handler, **options):
    return Client("http://scores.example/", http=httpx.Client(transport=httpx.MockTransport(handler)), **options)


def never(request):
    raise AssertionError("the client sent a request")


def count(value):
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(count(v) for v in children)


class ClientTest(unittest.TestCase):
    def test_addresses(self):
        for address in ("", "scores.example", "ftp://scores.example", "http://", "https://scores.example/?a=b"):
            with self.assertRaises(ValueError, msg=address):
                Client(address)

    def test_inputs_that_json_cannot_hold(self):
        board = client(never).board("b")
        for fields in ({"score": math.nan}, {"points": 1.5}, {"score": 2.0**53}, {"metadata": {"speed": math.inf}},
                       {"metadata": {"deep": [{"x": math.nan}]}}, {"metadata": {"x": object()}}):
            result = {"user_id": "ann", **fields}
            with self.assertRaisesRegex(ValueError, "user 'ann'"):
                board.submit(result)
            with self.assertRaises(ValueError):
                board.submit_batch([{"user_id": "bob"}, result])
        for user in ("\ud800", "", ".."):
            with self.assertRaisesRegex(ValueError, "is not an id"):
                board.user(user)

    def test_batches_are_within_all_limits(self):
        for metadata in (None, {"pad": "é" * 2000}, {"list": [None] * 600}, {"pad": "," * 3000}):
            requests = []

            def answer(request):
                body = json.loads(request.content)
                requests.append(1)
                self.assertLessEqual(len(body["results"]), 5000)
                self.assertLessEqual(len(request.content), 16 << 20)
                self.assertLessEqual(count(body), 500_000)
                return httpx.Response(200, json={"outcomes": [{"status": "APPLIED", "user_id": r["user_id"]} for r in body["results"]]})

            results = [{"user_id": f"u{i}", "points": 1, **({"metadata": metadata} if metadata else {})} for i in range(4500 if metadata else 5001)]
            outcomes = client(answer).board("b").submit_batch(results)
            self.assertEqual([o["user_id"] for o in outcomes], [r["user_id"] for r in results])
            self.assertGreater(len(requests), 1)

    def test_prepared_results(self):
        prepared = prepare({"user_id": "ann"})
        self.assertEqual(prepare(prepared), prepared)
        self.assertNotEqual(prepare({"user_id": "ann"})["match_id"], prepared["match_id"])
        self.assertNotIn("achieved_at", prepare({"user_id": "ann", "season": "2026"}))

    def test_calls_at_the_same_time_share_a_new_token(self):
        asked = []

        def token(rejected):
            asked.append(rejected)
            return f"token-{len(asked)}"

        def answer(request):
            valid = request.headers["Authorization"] == "Bearer token-2"
            return httpx.Response(200, json={"data": {}}) if valid else httpx.Response(401, json={"message": "expired"})

        board = client(answer, token=token).board("b")
        threads = [threading.Thread(target=board.top) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(asked, ["", "token-1"])

        async def together():
            async def async_token(rejected):
                return token(rejected)

            asked.clear()
            async with AsyncClient("http://scores.example", token=async_token, http=httpx.AsyncClient(transport=httpx.MockTransport(answer))) as c:
                await asyncio.gather(*(c.board("b").top() for _ in range(20)))

        asyncio.run(together())
        self.assertEqual(asked, ["", "token-1"])

    def test_without_retries(self):
        attempts = []

        def refuse(request):
            attempts.append(1)
            raise httpx.ConnectError("refused")

        with self.assertRaises(ConnectionFailed):
            client(refuse, retry_for=-1).board("b").top()
        self.assertEqual(len(attempts), 1)

    def test_a_silent_stream_reconnects(self):
        connections, waits = [], []

        class Silent(httpx.SyncByteStream):
            def __iter__(self):
                yield b'id: 1\r\nda'
                yield b'ta: {"count":%d}\r\n\r\n' % len(connections)
                raise httpx.ReadTimeout("silent")  # as httpx does

        def answer(request):
            self.assertEqual(request.extensions["timeout"]["read"], 20)
            connections.append(1)
            return httpx.Response(200, stream=Silent())

        c = client(answer)
        c._sleep = waits.append
        counts = []
        for top in c.board("b").watch():
            counts.append(top["count"])
            if len(counts) == 3:
                break
        self.assertEqual((counts, len(waits)), ([1, 2, 3], 2))

    def test_streams_in_any_parts(self):
        text = 'id: 1\ndata: {"count":1,"board":"ü"}\n\n: c\n\ndata: {"count":2}\ndata:\n\n'.encode()
        for size in range(1, len(text)):
            events = Events()
            got = [top for i in range(0, len(text), size) for top in events.read(text[i:i + size], False)]
            self.assertEqual(got, [{"count": 1, "board": "ü"}, {"count": 2}])


if __name__ == "__main__":
    unittest.main()
