from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

import pytest

from podium.core.errors import BadReply, ConfigError, RateLimited, Unavailable
from podium.core.request import Delta, Reply, Request, Usage, user
from podium.core.worker import Worker
from podium.workers import Faults, FaultyWorker, ScriptedWorker, faulty
from podium.workers.faulty import FAULT_NAMES

ASK = Request((user("hello"),))
WORDS = "one two three four five six seven eight"


def always(kind: str, **more: float) -> Faults:
    return Faults(**{kind: 1.0, **more})


def disturbed(faults: Faults, seed: int = 0) -> FaultyWorker:
    return FaultyWorker(ScriptedWorker("w", WORDS), faults, seed)


async def pieces_of(worker: Worker, request: Request = ASK) -> list[Delta | Reply]:
    return [piece async for piece in worker.stream(request)]


async def outcomes(worker: Worker, asked: Sequence[str]) -> list[str]:
    """How each call ends, all of them in flight at once, in the order of `asked`."""

    async def outcome(words: str) -> str:
        try:
            reply = await worker.reply(Request((user(words),)))
        except (RateLimited, Unavailable, BadReply) as error:
            return type(error).__name__
        return str(reply.usage.input_tokens)

    return list(await asyncio.gather(*map(outcome, asked)))


def test_it_is_a_worker_with_the_profile_of_the_one_behind() -> None:
    worker = disturbed(Faults())
    assert isinstance(worker, Worker)
    assert worker.profile.name == "w"


async def test_without_faults_it_is_the_worker_behind() -> None:
    worker = disturbed(Faults())
    assert (await worker.reply(ASK)).text == WORDS
    assert len(await pieces_of(worker)) == 9
    assert worker.calls == 2
    assert not worker.injected


async def test_a_delay_is_followed_by_the_good_reply() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    worker = FaultyWorker(
        ScriptedWorker("w", "ok"), always("latency", latency_seconds=2.0), sleep=sleep
    )
    for _ in range(200):
        assert (await worker.reply(ASK)).text == "ok"
    assert len(set(slept)) == 200
    assert 1.5 < sum(slept) / 200 < 2.5
    assert worker.injected == {"latency": 200}


async def test_a_429_becomes_a_rate_limit_error() -> None:
    with pytest.raises(RateLimited, match="w answered HTTP 429") as silent:
        await disturbed(always("rate_limited")).reply(ASK)
    worker = disturbed(always("rate_limited_with_retry_after", retry_after_seconds=7.5))
    with pytest.raises(RateLimited) as telling:
        await worker.reply(ASK)
    assert (silent.value.retry_after, silent.value.billed) == (None, False)
    assert (telling.value.retry_after, telling.value.billed) == (7.5, False)


async def test_a_server_error_is_unbilled_and_a_lost_connection_may_be_billed() -> None:
    with pytest.raises(Unavailable, match="w answered HTTP 5") as refused:
        await disturbed(always("server_error")).reply(ASK)
    with pytest.raises(Unavailable, match="reset") as reset:
        await disturbed(always("reset")).reply(ASK)
    assert (refused.value.billed, reset.value.billed) == (False, True)


async def test_what_fails_before_a_reply_does_not_reach_the_worker_behind() -> None:
    behind = ScriptedWorker("w", WORDS)
    for kind in ("rate_limited", "server_error", "reset", "malformed_json", "truncated_stream"):
        with pytest.raises((RateLimited, Unavailable, BadReply)):
            await FaultyWorker(behind, always(kind)).reply(ASK)
    assert behind.calls == 0


async def test_a_truncated_stream_gives_some_pieces_and_then_ends_or_breaks() -> None:
    worker = disturbed(always("truncated_stream"))
    result: list[Delta | Reply] = []
    billed = []
    for _ in range(40):
        try:
            result.extend([piece async for piece in worker.stream(ASK)])
        except Unavailable as error:
            billed.append(error.billed)
    assert 5 < len(billed) < 35
    assert all(billed)
    assert len(result) > 40
    assert all(isinstance(piece, Delta) for piece in result)


async def test_malformed_json_is_a_bad_reply() -> None:
    with pytest.raises(BadReply, match="expected JSON"):
        await disturbed(always("malformed_json")).reply(ASK)


async def test_wrong_usage_comes_with_a_good_reply_in_every_form() -> None:
    worker = disturbed(always("wrong_usage"))
    seen = set()
    for _ in range(40):
        reply = await worker.reply(ASK)
        assert reply.text == WORDS
        seen.add(reply.usage)
    (*_, last) = await pieces_of(worker)
    assert isinstance(last, Reply)
    assert last.usage in seen
    assert len(seen) == 4
    assert Usage(1, 8, 0, 0, 0) not in seen


async def test_an_endless_stream_continues_as_long_as_it_is_read_and_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        length = 0
        stream = disturbed(always("endless")).stream(ASK)
        async for piece in stream:
            length += len(piece.text)
            if length > 20_000_000:
                break
        await stream.aclose()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


async def test_an_endless_reply_is_given_up_by_the_border_or_by_a_deadline() -> None:
    with pytest.raises(BadReply, match="more than 16 MiB"):
        await disturbed(always("endless")).reply(ASK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await disturbed(always("endless")).reply(ASK)


async def test_the_same_seed_brings_the_same_faults_in_any_order_and_another_seed_others() -> None:
    asked = [f"question {number}" for number in range(300)]
    faults = Faults.evenly(0.5, latency_seconds=0.0)
    first = await outcomes(disturbed(faults, 1), asked)
    backwards = await outcomes(disturbed(faults, 1), asked[::-1])
    assert first == backwards[::-1]
    assert first != await outcomes(disturbed(faults, 2), asked)


async def test_a_repeated_call_and_a_substitute_have_draws_of_their_own() -> None:
    faults = Faults(server_error=0.5)
    repeated = await outcomes(disturbed(faults), ["same"] * 100)
    assert 30 < Counter(repeated)["Unavailable"] < 70
    one = FaultyWorker(ScriptedWorker("one", "ok"), faults)
    other = FaultyWorker(ScriptedWorker("other", "ok"), faults)
    asked = [f"question {number}" for number in range(100)]
    assert await outcomes(one, asked) != await outcomes(other, asked)


async def test_every_fault_has_its_share_and_is_counted() -> None:
    worker = disturbed(Faults.evenly(0.9, latency_seconds=0.0))
    await outcomes(worker, [str(number) for number in range(1000)])
    assert set(worker.injected) == set(FAULT_NAMES)
    assert all(60 < count < 150 for count in worker.injected.values())


async def test_it_remembers_no_more_requests_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty, "MAX_REMEMBERED", 3)
    worker = disturbed(Faults())
    await outcomes(worker, [str(number) for number in range(10)])
    assert len(worker._call_counts) == 3


def test_shares_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"faults.reset is -0.1; expected a number from 0 to 1"):
        Faults(reset=-0.1)
    with pytest.raises(ConfigError, match="add up to more than 1"):
        Faults(reset=0.6, endless=0.6)
    with pytest.raises(ConfigError, match="latency_seconds"):
        Faults(latency_seconds=float("inf"))


async def test_closing_it_closes_the_worker_behind() -> None:
    class Closable(Worker):
        profile = ScriptedWorker("w", "ok").profile
        closed = False

        async def reply(self, request: Request) -> Reply:
            return Reply("ok")

        async def close(self) -> None:
            self.closed = True

    behind = Closable()
    await FaultyWorker(behind, Faults()).close()
    await disturbed(Faults()).close()
    assert behind.closed


async def test_a_stream_that_is_left_closes_the_one_behind() -> None:
    class Watched(Worker):
        profile = ScriptedWorker("w", "ok").profile
        left = False

        async def reply(self, request: Request) -> Reply:
            return Reply("x")

        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            try:
                while True:
                    yield Delta("x")
            finally:
                self.left = True

    behind = Watched()
    stream = FaultyWorker(behind, Faults()).stream(ASK)
    await anext(stream)
    await stream.aclose()
    assert behind.left
