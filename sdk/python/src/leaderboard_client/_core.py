"""What both clients share: errors, delays, encoding and the events of streams."""

from __future__ import annotations

import json
import math
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict
from urllib.parse import quote

import httpx

from . import types

SILENCE = 20.0  # servers send an event at least every 15 seconds
FIRST_DELAY, LAST_DELAY, LONGEST = 0.1, 5.0, 86_400.0
# Bounds of one batch. OVERHEAD is for what surrounds the results.
BATCH_RESULTS, BATCH_BYTES, BATCH_VALUES, OVERHEAD = 5_000, 16 << 20, 500_000, 100
# HTTP statuses of codes, for errors inside streams.
STATUSES = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 409, 14: 503, 16: 401}


class Field(TypedDict):
    """An invalid field of a request, such as results[3].score."""

    field: str
    description: str


class LeaderboardError(Exception):
    """A refusal by the server. docs/api.md lists statuses and reasons."""

    def __init__(self, status: int, body: Any, retry_after: float = 0.0, request_id: str | None = None) -> None:
        self.status = status
        """The HTTP status."""
        self.reason: types.ErrorReason | None = None
        """The API's reason. It is None if a proxy answered."""
        self.fields: list[Field] = []
        """The invalid fields."""
        self.outcome: types.Outcome | None = None
        """Describes a rejected result. The server rejects the same result again each time."""
        self.result: types.Result | None = None
        """The result that counts if the reason is REVISION_CHANGED."""
        self.retry_after = retry_after
        """The delay in seconds that the server demands, or 0."""
        self.request_id = request_id
        """Names the call in the server's logs."""
        message = body.get("message") if isinstance(body, dict) else None
        if message:
            self._read(body.get("details") or [])
        super().__init__(f"{status} {self.reason or ''}: {message or 'the answer is not that of a leaderboard server'}")

    def _read(self, details: list[dict[str, Any]]) -> None:
        for detail in details:
            kind = str(detail.pop("@type", "")).rpartition(".")[2]
            if kind == "ErrorInfo":
                self.reason = detail.get("reason")
            elif kind == "BadRequest":
                self.fields = detail.get("field_violations", [])
            elif kind == "RetryInfo" and (m := re.fullmatch(r"(\d{1,12}(?:\.\d+)?)s", str(detail.get("retry_delay")))):
                self.retry_after = max(self.retry_after, min(float(m[1]), LONGEST))
            elif kind == "Outcome":
                self.outcome = detail  # type: ignore[assignment]
            elif kind == "Result":
                self.result = detail  # type: ignore[assignment]


class ConnectionFailed(Exception):
    """The connection broke or timed out. Whether the call had an effect is unknown."""


def retry_after(value: str | None, now: float) -> float:
    """Returns the seconds of a header Retry-After: seconds, or a date."""
    if value and value.isascii() and value.isdigit():
        return float(min(int(value[:12]), LONGEST))
    try:
        return min(max(parsedate_to_datetime(value or "").timestamp() - now, 0.0), LONGEST)
    except (ValueError, OverflowError):
        return 0.0


def refusal(response: httpx.Response) -> LeaderboardError:
    """Returns the error that an answer has."""
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    after = retry_after(response.headers.get("Retry-After"), time.time())
    return LeaderboardError(response.status_code, body, after, response.headers.get("X-Request-Id"))


def retry_delay(error: Exception, safe: bool) -> float | None:
    """Returns the delay that the server demands before a retry, or None if no retry can help."""
    if isinstance(error, ConnectionFailed):
        return 0.0 if safe else None
    if not isinstance(error, LeaderboardError):
        return None
    if error.status in (408, 429, 503) or safe and error.status in (502, 504):
        return error.retry_after
    return None


class Backoff:
    """The delays between attempts, each longer than the one before."""

    def __init__(self, now: Callable[[], float], retry_for: float) -> None:
        self._now, self._end, self._next = now, now() + retry_for, FIRST_DELAY

    def delay(self, after: float) -> float | None:
        """Returns the demanded delay and a random one, or None if it would be over after the end."""
        seconds = after + self._next / 2 * (1 + random.random())
        self._next = min(2 * self._next, LAST_DELAY)
        return seconds if self._now() + seconds <= self._end else None


def check_address(address: str) -> str:
    url = httpx.URL(address)
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ValueError(f"{address!r} is not an http or https URL without a query")
    return address.removesuffix("/")


def path_of(path: str, *ids: str) -> str:
    """Appends ids to a path. Proxies remove the segments "." and "..", so such ids are refused; no new id can be one."""
    for name in ids:
        try:
            if name in ("", ".", ".."):
                raise ValueError
            path += "/" + quote(name, safe="")  # fails if name has half of a surrogate pair
        except ValueError:
            raise ValueError(f'"{name!a}" is not an id'.replace("'", "")) from None
    return path


def query_of(query: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the parameters of a query."""
    texts = {True: "true", False: "false"}
    return {name: texts[v] if isinstance(v, bool) else v for name, v in (query or {}).items() if v is not None and v != ""}


def encode(value: Any) -> bytes:
    """Encodes a body. NaN and infinities are errors."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def decode(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("the answer is not that of a leaderboard server") from None


def prepare(result: types.ResultInput) -> types.ResultInput:
    """Returns result with a random match_id and with achieved_at, the present, where it has none.

    With a season and without achieved_at, the server takes the time of the stored result, so none is set. Submits
    prepare each result. A caller that may submit a result again later, such as after a restart, stores the prepared
    result first.
    """
    r = result.copy()
    if not r.get("match_id"):
        r["match_id"] = secrets.token_hex(16)
    if not r.get("achieved_at") and not r.get("season"):
        r["achieved_at"] = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
    return r


def encode_result(result: types.ResultInput) -> bytes:
    for name in ("score", "points", "revision"):
        if isinstance(value := result.get(name), float) and not (math.isfinite(value) and value.is_integer() and abs(value) < 2**53):
            raise ValueError(f"the result of user {result.get('user_id')!r}: {name}: {value} is not an exact integer")
    try:
        return encode(prepare(result))
    except (ValueError, TypeError) as error:
        raise ValueError(f"the result of user {result.get('user_id')!r}: {error}") from error


def batch_length(encoded: Sequence[bytes], first: int) -> int:
    """Returns how many results from first fit into one request, at least 1. Each JSON value follows a bracket or a comma."""
    size = values = OVERHEAD
    for i in range(first, len(encoded)):
        text = encoded[i]
        size += len(text) + 1
        values += 1 + text.count(b",") + text.count(b"{") + text.count(b"[")
        if i > first and (i - first == BATCH_RESULTS or size > BATCH_BYTES or values > BATCH_VALUES):
            return i - first
    return len(encoded) - first


def batch_body(options: Mapping[str, Any] | None, results: list[bytes]) -> bytes:
    head = encode(dict(options or {}))[:-1]
    return head + (b"," if options else b"") + b'"results":[' + b",".join(results) + b"]}"


class Events:
    """Reads the lines of a stream."""

    def __init__(self) -> None:
        self._text = b""
        self._clear()

    def _clear(self) -> None:
        self._name, self._retry, self._data = "", 0, ""

    def read(self, chunk: bytes, replaces_tokens: bool) -> Iterator[types.Leaderboard]:
        """Returns the complete events. The events reconnect and error raise an error.

        A token that has ended may be replaced in the next connection.
        """
        *lines, self._text = (self._text + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r").decode(errors="replace")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._name = value
            elif name == "retry":
                self._retry = int(value) if value.isascii() and value.isdigit() and len(value) < 12 else 0
            elif name == "data":
                self._data += value
            if line:
                continue
            if self._name:
                raise self._error(replaces_tokens)
            data = self._data
            self._clear()
            if data:
                yield decode(data)

    def _error(self, replaces_tokens: bool) -> Exception:
        try:
            body = json.loads(self._data)["error"]
            error = LeaderboardError(STATUSES.get(body["code"], 500), body, min(self._retry / 1000, LONGEST))
        except (ValueError, TypeError, KeyError):
            return ConnectionFailed("the stream has broken")
        return ConnectionFailed(str(error)) if error.status == 401 and replaces_tokens else error
