"""The asynchronous client. tools/types writes the synchronous one, _sync.py, from this file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from . import _core, types

T = TypeVar("T")


class AsyncClient:
    """A client of one server.

    Calls are retried until they succeed, until an attempt fails with an error that a retry cannot cure, or until
    retry_for has passed. Options: an API key or a JSON web token as key, or a callback token that returns one. The
    client calls token before the first call with "", and again with each token that the server rejects; if token
    returns the rejected token again, the call fails. timeout bounds each wait for the network, and retry_for the time
    from the first attempt to the last, both in seconds; in watch, retry_for bounds the time without an event. A negative
    retry_for disables retries. http sends the requests, by default a new httpx.AsyncClient, which aclose closes.
    """

    def __init__(self, address: str, *, key: str = "", token: Callable[[str], Awaitable[str]] | None = None,
                 timeout: float = 30.0, retry_for: float = 120.0, http: httpx.AsyncClient | None = None) -> None:
        self._base = _core.check_address(address)
        self._key, self._token, self._timeout, self._retry_for = key, token, timeout, retry_for
        self._http = http or httpx.AsyncClient()
        self._present: str | None = None
        self._lock = asyncio.Lock()
        self._now: Callable[[], float] = time.monotonic
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def board(self, id: str) -> AsyncBoard:
        """Returns the board with an id, without a call. The default board has the id "default"."""
        return AsyncBoard(self, _core.path_of("/v1/boards", id))

    async def boards(self) -> list[types.Board]:
        """Returns the boards that the caller may see."""
        answer: types.ListBoardsResponse = await self._send("GET", "/v1/boards", safe=True)
        return answer["boards"]

    async def submit_batch(self, results: list[types.ResultInput], options: types.SubmitScoreQuery | None = None) -> list[types.Outcome]:
        """Submits results of any boards; each needs board_id. Otherwise as submit_batch of a board."""
        return await self._batch("/v1/results:batch", results, options)

    async def user_scores(self, user: str, query: types.ListUserScoresQuery | None = None) -> types.ListUserScoresUserScores:
        """Returns the entries of a user on all boards."""
        answer: types.ListUserScoresResponse = await self._send("GET", _core.path_of("/v1/users", user) + "/scores", query, safe=True)
        return answer["data"]

    async def profile(self, user: str) -> types.Profile:
        """Returns the profile of a user."""
        answer: types.Profile = await self._send("GET", _core.path_of("/v1/users", user) + "/profile", safe=True)
        return answer

    async def put_profile(self, user: str, body: types.ProfileInput, query: types.PutProfileQuery | None = None) -> types.Profile:
        """Replaces the profile of a user, and returns the one that counts.

        Only with a revision, it is retried after a broken connection.
        """
        path, content = _core.path_of("/v1/users", user) + "/profile", _core.encode(body)
        answer: types.Profile = await self._send("PUT", path, query, content, safe="revision" in body)
        return answer

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Calls a route without a method here, such as POST /v1/users/ann:ban. The path may have a query.

        After a broken connection, only GET is retried.
        """
        return await self._send(method, path, None, None if body is None else _core.encode(body), safe=method == "GET")

    async def _retry(self, delay: Callable[[Exception], float | None], attempt: Callable[[], Awaitable[T]]) -> T:
        """Calls attempt until it succeeds or until delay returns None."""
        backoff = _core.Backoff(self._now, self._retry_for)
        while True:
            try:
                return await attempt()
            except Exception as error:
                after = delay(error)
                seconds = None if after is None else backoff.delay(after)
                if seconds is None:
                    raise
            await self._sleep(seconds)

    async def _send(self, method: str, path: str, query: Any = None, content: bytes | None = None, safe: bool = False) -> Any:
        async def attempt() -> bytes:
            response = await self._open(method, path, query, content, self._timeout)
            try:
                return await self._connected(response.aread())
            finally:
                await response.aclose()

        return _core.decode(await self._retry(lambda error: _core.retry_delay(error, safe), attempt))

    async def _open(self, method: str, path: str, query: Any, content: bytes | None, timeout: float) -> httpx.Response:
        """Makes one attempt, or more if the server rejects the token."""
        token = await self._credentials("")
        while True:
            headers = {"Content-Type": "application/json"} if content is not None else {}
            if token:
                headers["Authorization"] = "Bearer " + token
            params = _core.query_of(query) or None
            request = self._http.build_request(method, self._base + path, params=params, content=content, headers=headers, timeout=timeout)
            response = await self._connected(self._http.send(request, stream=True, follow_redirects=False))
            if response.is_success:
                return response
            try:
                await self._connected(response.aread())
            finally:
                await response.aclose()
            error = _core.refusal(response)
            if response.status_code != 401 or not token:
                raise error
            rejected = token
            token = await self._credentials(rejected)
            if token == rejected:
                raise error

    async def _connected(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except httpx.RequestError as error:
            raise _core.ConnectionFailed(f"{type(error).__name__}: {error}") from error

    async def _credentials(self, rejected: str) -> str:
        """Returns the token of the next attempt. Calls at the same time share one new token."""
        if self._token is None:
            return self._key
        async with self._lock:
            if self._present is None or rejected and self._present == rejected:
                self._present = await self._token(rejected)
            return self._present

    async def _batch(self, path: str, results: list[types.ResultInput], options: types.SubmitScoreQuery | None) -> list[types.Outcome]:
        encoded = [_core.encode_result(r) for r in results]
        outcomes: list[types.Outcome] = []
        while len(outcomes) < len(encoded):
            first = len(outcomes)
            end = first + _core.batch_length(encoded, first)
            try:
                outcomes += await self._part(path, encoded[first:end], options)
            except Exception as error:
                error.args = (f"results {first} to {end - 1}: {error}",)
                raise
        return outcomes

    async def _part(self, path: str, results: list[bytes], options: types.SubmitScoreQuery | None) -> list[types.Outcome]:
        """Submits the results of one request, and again those that have failed, until retry_for is over."""
        outcomes: dict[int, types.Outcome] = {}
        pending = list(range(len(results)))
        backoff = _core.Backoff(self._now, self._retry_for)
        while True:
            body = _core.batch_body(options, [results[i] for i in pending])
            answer: types.BatchSubmitScoresResponse = await self._send("POST", path, None, body, safe=True)
            if len(answer["outcomes"]) != len(pending):
                raise ValueError(f"the server answered with {len(answer['outcomes'])} outcomes for {len(pending)} results")
            outcomes.update(zip(pending, answer["outcomes"], strict=True))
            pending = [i for i in pending if outcomes[i]["status"] == "FAILED"]
            seconds = backoff.delay(0.0) if pending else None
            if seconds is None:
                return [outcomes[i] for i in range(len(results))]
            await self._sleep(seconds)


async def _pages(token: str, read: Callable[[str], Awaitable[tuple[list[T], str]]]) -> AsyncGenerator[T]:
    """Returns the elements of all pages."""
    while True:
        elements, following = await read(token)
        for element in elements:
            yield element
        if not following:
            return
        if following == token:
            raise ValueError("the server repeated a page token")
        token = following


class AsyncBoard:
    """Calls one board."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client, self._path = client, path

    async def _get(self, path: str, query: Any = None) -> Any:
        return await self._client._send("GET", self._path + path, query, safe=True)

    async def settings(self) -> types.Board:
        """Returns the settings of the board."""
        answer: types.Board = await self._get("")
        return answer

    async def submit(self, result: types.ResultInput, query: types.SubmitScoreQuery | None = None) -> types.SubmitScoreResponse:
        """Submits one result. The answer has the user's score and rank.

        If the board's rules reject the result, the error is a LeaderboardError with an outcome.
        """
        content = _core.encode_result(result)
        answer: types.SubmitScoreResponse = await self._client._send("POST", self._path + "/scores", query, content, safe=True)
        return answer

    async def submit_batch(self, results: list[types.ResultInput], options: types.SubmitScoreQuery | None = None) -> list[types.Outcome]:
        """Submits any number of results, in requests within the limits of the server, and again those that have FAILED.

        Returns an outcome for each, in the same order. Rejected results have the status REJECTED and are no error.
        """
        return await self._client._batch(self._path + "/scores:batch", results, options)

    async def wait_applied(self, accepted: types.SubmitScoreResponse) -> types.GetResultResponse:
        """Waits until a result whose status is ACCEPTED is applied or rejected, and returns its state. Gives up after retry_for."""
        query: types.GetResultQuery = {"season": accepted["season"], "revision": accepted["revision"]}

        def delay(error: Exception) -> float | None:
            return 0.0 if isinstance(error, _core.LeaderboardError) and error.reason == "RESULT_NOT_FOUND" else None

        return await self._client._retry(delay, lambda: self.result(accepted["user_id"], accepted["match_id"], query))

    async def top(self, query: types.ListScoresQuery | None = None) -> types.Leaderboard:
        """Returns one page of the ranking, by default the first 10 entries."""
        answer: types.ListScoresResponse = await self._get("/scores", query)
        return answer["data"]

    def entries(self, query: types.ListScoresQuery | None = None) -> AsyncGenerator[types.Entry]:
        """Returns all entries of a ranking, from the start that query gives. It reads pages of limit entries, by default 1,000."""
        q: types.ListScoresQuery = {"limit": 1000, **(query or {})}

        async def read(token: str) -> tuple[list[types.Entry], str]:
            if token:
                q.pop("start_rank", None)
                q["page_token"] = token
            page = await self.top(q)
            return page["leaderboard"], page["next_page_token"]

        return _pages(q.get("page_token", ""), read)

    def search(self, query: types.SearchUsersQuery) -> AsyncGenerator[types.Entry]:
        """Returns the entries of users whose names or ids begin with prefix."""
        async def read(token: str) -> tuple[list[types.Entry], str]:
            page = (await self._get("/users", {**query, "page_token": token}))["data"]
            return page["leaderboard"], page["next_page_token"]

        return _pages(query.get("page_token", ""), read)

    def seasons(self) -> AsyncGenerator[types.ListSeasonsSeason]:
        """Returns the seasons of the board, the newest first."""
        async def read(token: str) -> tuple[list[types.ListSeasonsSeason], str]:
            page = (await self._get("/seasons", {"page_token": token}))["data"]
            return page["seasons"], page["next_page_token"]

        return _pages("", read)

    def results(self, user: str, query: types.ListUserResultsQuery | None = None) -> AsyncGenerator[types.GetResultResponse]:
        """Returns the results of a user, the newest season first."""
        q: dict[str, Any] = {**(query or {})}

        async def read(token: str) -> tuple[list[types.GetResultResponse], str]:
            page = await self._get(_core.path_of("/results", user), {**q, "page_token": token})
            return page["results"], page["next_page_token"]

        return _pages(q.get("page_token", ""), read)

    async def user(self, user: str, query: types.GetUserScoreQuery | None = None) -> types.GetUserScoreUserScore:
        """Returns the entry of a user, with neighbors. Without an entry, the error has the reason ENTRY_NOT_FOUND."""
        answer: types.GetUserScoreResponse = await self._get(_core.path_of("/scores", user), query)
        return answer["data"]

    async def lookup(self, body: types.LookupScoresRequest) -> types.Leaderboard:
        """Returns the entries of up to 5,000 users, with their ranks among themselves."""
        path = self._path + "/scores:lookup"
        answer: types.LookupScoresResponse = await self._client._send("POST", path, None, _core.encode(body), safe=True)
        return answer["data"]

    async def stats(self, query: types.GetStatsQuery | None = None) -> types.GetStatsStats:
        """Returns statistics of a ranking."""
        answer: types.GetStatsResponse = await self._get("/stats", query)
        return answer["data"]

    async def season(self, id: str, query: types.GetSeasonQuery | None = None) -> types.ListSeasonsSeason:
        """Returns a season, or the newest with entries if id is "latest"."""
        answer: types.GetSeasonResponse = await self._get(_core.path_of("/seasons", id), query)
        return answer["data"]

    async def result(self, user: str, match: str, query: types.GetResultQuery | None = None) -> types.GetResultResponse:
        """Returns the state of a result."""
        answer: types.GetResultResponse = await self._get(_core.path_of("/results", user, match), query)
        return answer

    async def correct(self, user: str, match: str, body: types.CorrectResultRequest) -> types.CorrectResultResponse:
        """Changes the given fields of a stored result.

        After a broken connection, it is not retried, as it could undo another correction.
        """
        path = _core.path_of(self._path + "/results", user, match)
        answer: types.CorrectResultResponse = await self._client._send("PATCH", path, None, _core.encode(body))
        return answer

    async def retract(self, user: str, match: str, body: types.RetractResultRequest | None = None) -> types.RetractResultResponse:
        """Undoes a result."""
        path = _core.path_of(self._path + "/results", user, match) + ":retract"
        answer: types.RetractResultResponse = await self._client._send("POST", path, None, _core.encode(body or {}), safe=True)
        return answer

    async def watch(self, query: types.WatchScoresQuery | None = None) -> AsyncGenerator[types.Leaderboard]:
        """Returns the top of a ranking now, and again after changes.

        If the connection breaks, it reconnects and returns the top at that time. It ends with the first error that a new
        connection cannot cure, such as a 401 for a token that the callback token does not replace, or when retry_for has
        passed without an event.
        """
        client = self._client
        backoff = _core.Backoff(client._now, client._retry_for)
        while True:
            try:
                async with aclosing(self._stream(query)) as events:
                    async for top in events:
                        yield top
                        backoff = _core.Backoff(client._now, client._retry_for)
            except Exception as error:
                after = _core.retry_delay(error, True)
                seconds = None if after is None else backoff.delay(after)
                if seconds is None:
                    raise
                await client._sleep(seconds)

    async def _stream(self, query: types.WatchScoresQuery | None) -> AsyncGenerator[types.Leaderboard]:
        """Returns the events of one connection. It ends with an error."""
        client, events = self._client, _core.Events()
        response = await client._open("GET", self._path + "/watch", query, None, _core.SILENCE)
        try:
            async for chunk in response.aiter_bytes():
                for top in events.read(chunk, client._token is not None):
                    yield top
        except httpx.RequestError as error:
            raise _core.ConnectionFailed(f"{type(error).__name__}: {error}") from error
        finally:
            await response.aclose()
        raise _core.ConnectionFailed("the server ended the stream")
