from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from podium.core.request import Reply, Usage
from podium.tasks.cluster import RemoteReplyCache, ReplyCacheActor, ReplyCacheSpec
from support.ray_cluster import Remote

USED = Usage(3, 1, 0, 0, 0)


def library(path: Path | None = None) -> Any:
    """A library as seats reach it."""
    kept = ReplyCacheActor(ReplyCacheSpec(path, 1_000_000))
    return SimpleNamespace(get=Remote(kept.get), put=Remote(kept.put))


async def says(words: str) -> Reply:
    await asyncio.sleep(0)
    return Reply(words, USED)


async def test_process_results_are_shared_between_worker_processes(tmp_path: Path) -> None:
    shelf = library(tmp_path / "replies.sqlite3")
    one, other = RemoteReplyCache(shelf), RemoteReplyCache(shelf)
    assert (await one.fetch(b"key", lambda: says("first"))).text == "first"
    assert (await other.fetch(b"key", lambda: says("second"))).text == "first"
    assert (await other.fetch(b"key", lambda: says("third"))).text == "first"
    assert (one.hits, one.misses) == (0, 1)
    assert (other.hits, other.misses) == (2, 0)
    later = ReplyCacheActor(ReplyCacheSpec(tmp_path / "replies.sqlite3", 1_000_000))
    assert later.get(b"key") == Reply("first", USED)


async def test_seats_that_ask_the_same_at_the_same_time_go_on_with_the_same_words() -> None:
    shelf = library()
    one, other = RemoteReplyCache(shelf), RemoteReplyCache(shelf)
    words = await asyncio.gather(
        one.fetch(b"key", lambda: says("first")), other.fetch(b"key", lambda: says("second"))
    )
    assert [reply.text for reply in words] == ["first", "first"]
    assert (await other.fetch(b"key", lambda: says("third"))).text == "first"
