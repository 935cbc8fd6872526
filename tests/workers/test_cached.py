"""Replies that are kept: what is shared, what is found again, what goes, and what goes wrong."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from podium.core.errors import ConfigError, Unavailable
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, Thinking, Tool, ToolCall, Usage, user
from podium.core.worker import Worker
from podium.workers.cached import MIN_BYTES, CachedWorker, ReplyCache
from podium.workers.scripted import ScriptedWorker
from support.harness import FakeWorker

MEGABYTE = 1_000_000
PLENTY = 100 * MEGABYTE


def asking(text: str = "hello") -> Request:
    return Request((user(text),))


def echo() -> ScriptedWorker:
    return ScriptedWorker("echo", lambda request: request.text)


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "replies.sqlite3" if request.param == "file" else None


# ---- finding again


async def test_the_same_request_is_asked_once(path: Path | None) -> None:
    worker = echo()
    with ReplyCache(path, PLENTY) as cache:
        cached = CachedWorker(worker, cache)
        first, second = await cached.reply(asking()), await cached.reply(asking())
        assert first == second == Reply("hello", Usage(1, 1, 0, 0, 0), model="echo")
        assert (worker.calls, cache.misses, cache.hits) == (1, 1, 1)
        assert cached.profile == worker.profile


async def test_cached_replies_survive_a_restart(tmp_path: Path) -> None:
    whole = Reply(
        "half a pair \ud83d, and ☃",
        Usage(5, 7, None, 2, 0),
        "tool",
        (ToolCall("1", "add", '{"a": 1}'),),
        (Thinking("hm", "signed", "m"),),
        "m-2",
    )
    worker = ScriptedWorker("worker", whole)
    with ReplyCache(tmp_path / "made" / "replies.sqlite3", PLENTY) as cache:
        await CachedWorker(worker, cache).reply(asking())
    with ReplyCache(tmp_path / "made" / "replies.sqlite3", PLENTY) as cache:
        assert await CachedWorker(worker, cache).reply(asking()) == whole
        assert (cache.hits, cache.misses) == (1, 0)
    assert worker.calls == 1


@pytest.mark.parametrize(
    "other",
    [
        asking("hello "),
        replace(asking(), temperature=0.5),
        replace(asking(), seed=1),
        replace(asking(), max_tokens=9),
        replace(asking(), tools=(Tool("add", "adds", {"type": "object"}),)),
        Request((user("hel"), user("lo"))),
    ],
)
async def test_another_request_is_asked_again(other: Request) -> None:
    worker = echo()
    cached = CachedWorker(worker, ReplyCache(None, PLENTY))
    await cached.reply(asking())
    await cached.reply(other)
    assert worker.calls == 2


@pytest.mark.parametrize(
    ("profile", "fingerprint"),
    [
        (WorkerProfile(name="b", model="m"), ""),
        (WorkerProfile(name="a", model="n"), ""),
        (WorkerProfile(name="a", model="m", provider="p"), ""),
        (WorkerProfile(name="a", model="m"), "adapter 2"),
    ],
)
async def test_another_worker_has_replies_of_its_own(
    profile: WorkerProfile, fingerprint: str
) -> None:
    cache = ReplyCache(None, PLENTY)
    one = ScriptedWorker(WorkerProfile(name="a", model="m"), "one")
    other = ScriptedWorker(profile, "other")
    assert (await CachedWorker(one, cache).reply(asking())).text == "one"
    again = await CachedWorker(other, cache, fingerprint=fingerprint).reply(asking())
    assert again.text == "other"


async def test_a_reply_that_cannot_be_read_any_more_is_asked_for_again(tmp_path: Path) -> None:
    file, worker = tmp_path / "replies.sqlite3", echo()
    with ReplyCache(file, PLENTY) as cache:
        await CachedWorker(worker, cache).reply(asking())
    database = sqlite3.connect(file)
    database.execute("UPDATE replies SET reply = '{\"text\": 4'")
    database.commit()
    database.close()
    with ReplyCache(file, PLENTY) as cache:
        assert (await CachedWorker(worker, cache).reply(asking())).text == "hello"
    assert worker.calls == 2


# ---- one call for all who ask at once


async def test_concurrent_equal_requests_share_one_call(path: Path | None) -> None:
    worker = FakeWorker("worker")
    with ReplyCache(path, PLENTY) as cache:
        cached = CachedWorker(worker, cache)
        replies = await asyncio.gather(*(cached.reply(asking()) for _ in range(50)))
        assert len(set(map(id, replies))) == 1
        assert (len(worker.asked), cache.misses, cache.shared, cache.hits) == (1, 1, 49, 0)


async def test_a_failure_reaches_all_waiters_and_is_not_cached() -> None:
    outcomes: list[str | Exception] = [Unavailable("busy"), "well"]
    worker = FakeWorker("worker", lambda request: outcomes.pop(0))
    cached = CachedWorker(worker, ReplyCache(None, PLENTY))
    failed = await asyncio.gather(
        *(cached.reply(asking()) for _ in range(3)), return_exceptions=True
    )
    assert [str(error) for error in failed] == ["busy"] * 3
    assert (await cached.reply(asking())).text == "well"
    assert len(worker.asked) == 2


async def test_next_waiter_calls_if_the_caller_is_cancelled() -> None:
    worker = FakeWorker("worker")
    worker.gate = asyncio.Event()
    cached = CachedWorker(worker, ReplyCache(None, PLENTY))
    first, second, third = (asyncio.create_task(cached.reply(asking())) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    worker.gate.set()
    assert (await second).text == (await third).text == "ok"
    assert first.cancelled()
    assert len(worker.asked) == 2


async def test_a_cancelled_waiter_affects_no_other() -> None:
    worker = FakeWorker("worker")
    worker.gate = asyncio.Event()
    cached = CachedWorker(worker, ReplyCache(None, PLENTY))
    first, second, third = (asyncio.create_task(cached.reply(asking())) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    worker.gate.set()
    assert (await first).text == (await third).text == "ok"
    assert second.cancelled()
    assert len(worker.asked) == 1


def test_a_cache_continues_on_another_event_loop(path: Path | None) -> None:
    worker = echo()
    with ReplyCache(path, PLENTY) as cache:
        cached = CachedWorker(worker, cache)
        texts = [asyncio.run(cached.reply(asking(text))).text for text in ("a", "b", "a")]
    assert texts == ["a", "b", "a"]
    assert worker.calls == 2


async def test_errors_are_passed_on_and_not_cached() -> None:
    class Odd(Worker):
        profile = WorkerProfile(name="odd")
        calls = 0

        async def reply(self, request: Request) -> Reply:
            self.calls += 1
            return "words"  # type: ignore[return-value]

    odd = Odd()
    cached = CachedWorker(odd, ReplyCache(None, PLENTY))
    for _ in range(2):
        handed_on: object = await cached.reply(asking())
        assert handed_on == "words"
    assert odd.calls == 2


# ---- streams


async def streamed(worker: Worker) -> list[Delta | Reply]:
    return [piece async for piece in worker.stream(asking("one two"))]


async def test_a_stream_comes_as_the_worker_speaks_and_is_kept() -> None:
    worker = echo()
    cached = CachedWorker(worker, ReplyCache(None, PLENTY))
    reply = Reply("one two", Usage(2, 2, 0, 0, 0), model="echo")
    assert await streamed(cached) == [Delta("one"), Delta(" two"), reply]
    assert await streamed(cached) == [Delta("one two"), reply]
    assert await cached.reply(asking("one two")) == reply
    assert worker.calls == 1


# ---- what goes


async def ask_all(worker: Worker, texts: Sequence[str]) -> None:
    for text in texts:
        await worker.reply(asking(text))


async def test_the_least_recently_used_go_first(path: Path | None) -> None:
    worker = ScriptedWorker("worker", lambda request: request.text.ljust(1000, "."))
    with ReplyCache(path, MIN_BYTES) as cache:
        cached = CachedWorker(worker, cache)
        await ask_all(cached, ["kept", *(f"old {n}" for n in range(20))])
        for number in range(60):
            await ask_all(cached, ["kept", f"new {number}"])
        assert worker.calls == 81
        await ask_all(cached, ["kept", "new 59"])
        assert worker.calls == 81
        await ask_all(cached, ["old 0"])
        assert worker.calls == 82


async def test_the_use_of_a_reply_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    worker = ScriptedWorker("worker", lambda request: request.text.ljust(1000, "."))
    file = tmp_path / "replies.sqlite3"
    with ReplyCache(file, MIN_BYTES) as cache:
        await ask_all(CachedWorker(worker, cache), ["kept", *(f"old {n}" for n in range(20))])
        await ask_all(CachedWorker(worker, cache), ["kept"])
    with ReplyCache(file, MIN_BYTES) as cache:
        await ask_all(CachedWorker(worker, cache), [f"new {n}" for n in range(15)])
    calls = worker.calls
    with ReplyCache(file, MIN_BYTES) as cache:
        await ask_all(CachedWorker(worker, cache), ["kept"])
        assert worker.calls == calls
        await ask_all(CachedWorker(worker, cache), ["old 0"])
        assert worker.calls == calls + 1


async def test_the_file_stays_within_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite3"
    sizes = [10, 5000, 200, 60_000]
    with ReplyCache(file, MEGABYTE // 2) as cache:
        worker = ScriptedWorker("worker", lambda request: "x" * sizes[len(request.text) % 4])
        await ask_all(CachedWorker(worker, cache), ["y" * n for n in range(1, 400)])
    assert MEGABYTE // 4 < file.stat().st_size <= MEGABYTE // 2


async def test_a_cache_file_shrinks_to_a_lowered_bound(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite3"
    worker = ScriptedWorker("worker", lambda request: request.text.ljust(1000, "."))
    with ReplyCache(file, PLENTY) as cache:
        await ask_all(CachedWorker(worker, cache), [f"old {n}" for n in range(600)])
    with ReplyCache(file, MIN_BYTES) as cache:
        await ask_all(CachedWorker(worker, cache), [f"new {n}" for n in range(10)])
    database = sqlite3.connect(file)
    (kept,) = database.execute("SELECT count(*) FROM replies").fetchone()
    database.close()
    assert 10 <= kept <= 40


async def test_a_reply_too_large_for_the_cache_pushes_nothing_out(path: Path | None) -> None:
    worker = ScriptedWorker("worker", lambda request: "x" * int(request.text))
    with ReplyCache(path, MIN_BYTES) as cache:
        await ask_all(CachedWorker(worker, cache), ["10", "60000", "10", "60000"])
    assert worker.calls == 3


def test_a_cache_too_small_to_hold_anything_is_refused() -> None:
    with pytest.raises(ConfigError, match="65,536 or more"):
        ReplyCache(None, 1000)


# ---- what goes wrong


async def test_a_broken_file_is_reported_once_and_the_cache_continues_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, worker = tmp_path / "replies.sqlite3", echo()
    file.write_bytes(b"these are not the bytes of a database at all" * 100)
    with ReplyCache(file, PLENTY) as cache:
        await ask_all(CachedWorker(worker, cache), ["a", "b", "a"])
    assert worker.calls == 2
    (result,) = caplog.records
    assert result.levelno == logging.WARNING
    assert "cached in memory only" in result.getMessage()
    assert str(file) in result.getMessage()


async def test_a_path_that_can_be_no_file_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "replies.sqlite3"):
        worker = echo()
        with ReplyCache(path, PLENTY) as cache:
            await ask_all(CachedWorker(worker, cache), ["a", "a"])
        assert worker.calls == 1
    assert len(caplog.records) == 2


async def test_a_file_that_breaks_meanwhile_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, worker = tmp_path / "replies.sqlite3", echo()
    with ReplyCache(file, PLENTY) as cache:
        await ask_all(CachedWorker(worker, cache), ["a"])
        database = sqlite3.connect(file)
        database.execute("DROP TABLE replies")
        database.close()
        await ask_all(CachedWorker(worker, cache), ["b", "a", "c", "b"])
    assert worker.calls == 4, "the reply in the file is asked for again"
    assert len(caplog.records) == 1


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from podium.workers import ScriptedWorker
from podium.workers.cached import CachedWorker, ReplyCache
from podium.core.request import Request, user

async def main():
    worker = ScriptedWorker("worker", "x" * 2000)
    cached = CachedWorker(worker, ReplyCache(Path(sys.argv[1]), 10**8))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for number in [*range(300), *range(300)]:
        await cached.reply(Request((user(str(number)),)))
    print(worker.calls)

asyncio.run(main())
"""


def test_a_disk_without_room_stops_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "replies.sqlite3")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 300 <= int(ended.stdout) < 400, "replies are still cached"
    assert ended.stderr.count("cached in memory only") == 1


MANY = """
import asyncio, sys
from pathlib import Path
from podium.workers import ScriptedWorker
from podium.workers.cached import CachedWorker, ReplyCache
from podium.core.request import Request, user

async def main():
    with ReplyCache(Path(sys.argv[1]), 10**8) as cache:
        cached = CachedWorker(ScriptedWorker("echo", lambda request: request.text), cache)
        for number in range(300):
            for text in (f"{sys.argv[2]} {number}", f"both {number}"):
                assert (await cached.reply(Request((user(text),)))).text == text

asyncio.run(main())
"""


def test_two_processes_share_one_file(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite3"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", MANY, str(file), name], stderr=subprocess.PIPE, text=True
        )
        for name in ("one", "other")
    ]
    assert [process.communicate()[1] for process in both] == ["", ""]
    assert [process.returncode for process in both] == [0, 0]
    worker = echo()
    with ReplyCache(file, PLENTY) as cache:
        for name in ("one", "other", "both"):
            asyncio.run(ask_all(CachedWorker(worker, cache), [f"{name} {n}" for n in range(300)]))
    assert worker.calls == 0


async def test_a_provider_cache_hint_does_not_change_the_cached_reply() -> None:
    cache = ReplyCache(None, MIN_BYTES)
    cached = CachedWorker(echo(), cache)
    await cached.reply(Request((user("x"),)))
    await cached.reply(Request((user("x"),), cache_key="mine", cache_ttl="1h"))
    assert (cache.hits, cache.misses) == (1, 1)


async def test_one_tool_at_a_time_is_another_request() -> None:
    cache = ReplyCache(None, MIN_BYTES)
    cached = CachedWorker(echo(), cache)
    await cached.reply(asking())
    await cached.reply(replace(asking(), parallel_tools=False))
    assert (cache.hits, cache.misses) == (0, 2)


async def test_another_budget_for_thinking_is_another_request() -> None:
    cache = ReplyCache(None, MIN_BYTES)
    cached = CachedWorker(echo(), cache)
    for tokens in (None, 1024, 2048, 1024):
        await cached.reply(replace(asking(), thinking_tokens=tokens))
    assert (cache.hits, cache.misses) == (1, 3)
