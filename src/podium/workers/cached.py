"""A cache of worker replies, in a file or in memory.

    cache = ReplyCache(directory / "replies.sqlite3", max_bytes=2_000_000_000)
    worker = CachedWorker(worker, cache)

Training asks the same few thousand questions again and again. A cached reply is the first one
verbatim, with its usage, so costs are reproducible; a sampling worker then repeats itself. The
cache never stops a run: if its file cannot be used, that is logged once and the cache continues in
memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self, TypeGuard

from podium.core.errors import ConfigError, WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, Thinking, ToolCall, Usage
from podium.core.worker import Worker

MIN_BYTES: Final = 65_536
"""A smaller file could not hold its own structure and a few replies."""

BUSY_SECONDS: Final = 5.0
log: Final = logging.getLogger("podium")

_Outcome = Reply | WorkerError | None
"""The outcome of a shared call; None if its caller gave up."""


class ReplyCache:
    """Keeps replies by key, in a file or, without a path, in memory.

    The least recently used are dropped beyond `max_bytes`; a reply over a quarter of that is not
    cached. Several processes may share one file; in one process a cache belongs to one event
    loop at a time. `hits` counts cached replies, `shared` replies that another caller was already
    waiting for, `misses` calls that were made.
    """

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        if max_bytes < MIN_BYTES:
            raise ConfigError(
                f"a cache of {max_bytes:,} bytes is too small; use {MIN_BYTES:,} or more"
            )
        self.path = path
        self._longest = max_bytes // 4
        self.hits = 0
        self.shared = 0
        self.misses = 0
        self._in_flight: dict[
            tuple[asyncio.AbstractEventLoop, bytes], list[asyncio.Future[_Outcome]]
        ] = {}
        self._max_bytes = max_bytes
        try:
            self._database = _ReplyDatabase(path, max_bytes)
        except (sqlite3.Error, OSError) as error:
            self._continue_in_memory(error)

    def get(self, key: bytes) -> Reply | None:
        try:
            document = self._database.get(key)
        except sqlite3.Error as error:
            self._database.abandon()
            self._continue_in_memory(error)
            return None
        reply = None if document is None else _decode(document)
        if reply is not None:
            self.hits += 1
        return reply

    def put(self, key: bytes, reply: Reply) -> None:
        document = _encode(reply)
        if len(document) > self._longest:
            return
        try:
            self._database.put(key, document)
        except sqlite3.Error as error:
            self._database.abandon()
            self._continue_in_memory(error)
            self._database.put(key, document)

    async def fetch(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the reply; the first caller asks and the others wait for it.

        A `WorkerError` is raised for all of them and not cached. If the first caller is cancelled,
        the next one asks.
        """
        loop = asyncio.get_running_loop()
        while True:
            reply = self.get(key)
            if reply is not None:
                return reply
            waiting = self._in_flight.get((loop, key))
            if waiting is None:
                return await self._ask((loop, key), ask)
            outcome = loop.create_future()
            waiting.append(outcome)
            result: _Outcome = await outcome
            if isinstance(result, WorkerError):
                raise result.with_traceback(None)
            if result is not None:
                self.shared += 1
                return result

    async def _ask(
        self, flight: tuple[asyncio.AbstractEventLoop, bytes], ask: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        waiting = self._in_flight[flight] = []
        outcome: _Outcome = None
        self.misses += 1
        try:
            outcome = reply = await ask()
            if _is_reply(reply):
                self.put(flight[1], reply)
            return reply
        except WorkerError as error:
            outcome = error
            raise
        finally:
            del self._in_flight[flight]
            for future in waiting:
                if not future.done():
                    future.set_result(outcome)

    def close(self) -> None:
        """Write what is left to write, and close the file."""
        try:
            self._database.close()
        except sqlite3.Error as error:
            self._database.abandon()
            self._warn(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _continue_in_memory(self, error: Exception) -> None:
        self._warn(error)
        self._database = _ReplyDatabase(None, self._max_bytes)

    def _warn(self, error: Exception) -> None:
        log.warning(
            "the reply cache %s cannot be used: %s; replies are cached in memory only; "
            "free disk space, or repair or move the file, before the next run",
            self.path,
            error,
        )


class CachedWorker:
    """A worker whose successful replies are cached.

    Replies are keyed by name, provider and model, and by `fingerprint`: whatever else decides the
    reply and is not in the request, such as options or an adapter's checksum. Workers that differ
    must differ in one of these.
    """

    profile: WorkerProfile

    def __init__(self, worker: Worker, cache: ReplyCache, *, fingerprint: str = "") -> None:
        self.profile = profile = worker.profile
        self._worker = worker
        self._cache = cache
        identity = (profile.name, profile.provider, profile.model, fingerprint)
        self._identity = hashlib.blake2b(repr(identity).encode(), digest_size=16)

    async def reply(self, request: Request) -> Reply:
        return await self._cache.fetch(self._key(request), lambda: self._worker.reply(request))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the cached reply at once, or the worker's, which is then cached."""
        key = self._key(request)
        cached = self._cache.get(key)
        if cached is not None:
            if cached.text:
                yield Delta(cached.text)
            yield cached
            return
        self._cache.misses += 1
        async with aclosing(self._worker.stream(request)) as pieces:
            async for piece in pieces:
                if _is_reply(piece):
                    self._cache.put(key, piece)
                yield piece

    def _key(self, request: Request) -> bytes:
        """Hash everything that a reply depends on.

        A request's `repr` leaves out hints and newer fields, so old caches stay valid.
        """
        key = self._identity.copy()
        key.update(repr(request).encode())
        if not request.parallel_tools:
            key.update(b"one tool at a time")
        if request.thinking_tokens is not None:
            key.update(b"thinking tokens: %d" % request.thinking_tokens)
        if request.extra:
            key.update(repr(request.extra).encode(errors="surrogatepass"))
        return key.digest()


class _ReplyDatabase:
    """Replies in a file, or in memory; last uses are written in batches."""

    MAX_TOUCHED: Final = 4096
    EVICTION_BATCH: Final = 4
    MAX_EVICTION_BATCHES: Final = 64
    SPARE_PAGES: Final = 3  # overhead of a row, in pages

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # replies are private
        self._max_bytes = max_bytes
        self._touched: dict[bytes, int] = {}
        # The loop may live on another thread than the one that made the cache.
        self._database = sqlite3.connect(
            path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        until = time.monotonic() + BUSY_SECONDS
        while True:  # SQLite does not wait for another process that changes the journal mode
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= until:
                    raise
                time.sleep(0.01)
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS replies"
            " (key BLOB PRIMARY KEY, used INTEGER NOT NULL, reply TEXT NOT NULL)"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS replies_by_use ON replies (used)")
        self._page_bytes = self._number("PRAGMA page_size")

    def get(self, key: bytes) -> str | None:
        row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        self._touch(key)
        return str(row[0])

    def _touch(self, key: bytes) -> None:
        self._touched[key] = time.time_ns()
        if len(self._touched) >= self.MAX_TOUCHED:
            self._write_touched()

    def put(self, key: bytes, document: str) -> None:
        room = self._max_bytes - len(document) - self.SPARE_PAGES * self._page_bytes
        if self._size() > room:
            self._shrink_to(room)
        self._database.execute(
            "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, time.time_ns(), document)
        )

    def close(self) -> None:
        try:
            self._write_touched()
        finally:
            self._database.close()

    def abandon(self) -> None:
        self._database.close()

    def _size(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._page_bytes

    def _shrink_to(self, size: int) -> None:
        """Drop the least recently used, a few at a time.

        A file whose limit was lowered shrinks over the next replies.
        """
        self._write_touched()
        for _ in range(self.MAX_EVICTION_BATCHES):
            if self._size() <= size:
                return
            self._database.execute(
                "DELETE FROM replies"
                " WHERE rowid IN (SELECT rowid FROM replies ORDER BY used LIMIT ?)",
                (self.EVICTION_BATCH,),
            )

    def _write_touched(self) -> None:
        touched, self._touched = self._touched, {}
        if touched:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "UPDATE replies SET used = ? WHERE key = ?",
                [(used, key) for key, used in touched.items()],
            )
            self._database.execute("COMMIT")

    def _number(self, query: str) -> int:
        return int(self._database.execute(query).fetchone()[0])


def _is_reply(piece: object) -> TypeGuard[Reply]:
    """True for a valid reply; anything else is not cached."""
    return isinstance(piece, Reply) and isinstance(piece.usage, Usage)


def _encode(reply: Reply) -> str:
    return json.dumps(asdict(reply), separators=(",", ":"))


def _decode(document: str) -> Reply | None:
    """Return the reply, or None if this version cannot read it."""
    try:
        fields: dict[str, Any] = json.loads(document)
        fields["usage"] = Usage(**fields["usage"])
        fields["tool_calls"] = tuple(ToolCall(**call) for call in fields["tool_calls"])
        fields["thinking"] = tuple(Thinking(**thought) for thought in fields["thinking"])
        fields["choices"] = tuple(fields.get("choices", ()))
        return Reply(**fields)
    except (ValueError, KeyError, TypeError):
        return None
