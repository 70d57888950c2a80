"""A client of leaderboard servers: Client for synchronous programs, AsyncClient for asyncio."""

from ._async import AsyncBoard, AsyncClient
from ._core import ConnectionFailed, Field, LeaderboardError, prepare
from ._sync import Board, Client

__all__ = ["AsyncBoard", "AsyncClient", "Board", "Client", "ConnectionFailed", "Field", "LeaderboardError", "prepare"]
