from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.chaos.faulty import FAULTS, FaultyWorker, evenly
from podium.core.errors import BadReply, RateLimited, Unavailable, WorkerError
from podium.core.request import Delta, Reply, Request, user
from podium.workers import ScriptedWorker

ASK = Request((user("hello"),))
WORDS = "one two three four five six seven eight"


def faulty(shares: dict[str, float], seed: int = 0, name: str = "w") -> FaultyWorker:
    return FaultyWorker(ScriptedWorker(name, WORDS), shares, seed)


async def outcomes(worker: FaultyWorker, asked: Sequence[str]) -> list[str]:
    """How each call ends, all of them in flight at once."""

    async def outcome(words: str) -> str:
        try:
            return repr((await worker.reply(Request((user(words),)))).usage)
        except WorkerError as error:
            return type(error).__name__

    return list(await asyncio.gather(*map(outcome, asked)))


async def test_without_faults_it_is_the_worker_behind() -> None:
    worker = faulty({})
    assert (await worker.reply(ASK)).text == WORDS
    assert len([piece async for piece in worker.stream(ASK)]) == 9
    assert (worker.calls, worker.injected.total()) == (2, 0)


@pytest.mark.parametrize(
    ("fault", "error", "billed"),
    [
        ("rate_limited", RateLimited, False),
        ("rate_limited_with_retry_after", RateLimited, False),
        ("server_error", Unavailable, False),
        ("reset", Unavailable, True),
        ("truncated_stream", Unavailable, True),
        ("malformed_json", BadReply, True),
        ("endless", BadReply, True),
    ],
)
async def test_a_fault_raises_its_error(fault: str, error: type[WorkerError], billed: bool) -> None:
    worker = faulty({fault: 1.0})
    with pytest.raises(error) as caught:
        await worker.reply(ASK)
    assert caught.value.billed is billed
    assert (caught.value.retry_after is not None) is (fault == "rate_limited_with_retry_after")
    assert worker.injected == {fault: 1}


async def test_a_truncated_stream_yields_pieces_and_then_ends_or_raises() -> None:
    worker, pieces, errors = faulty({"truncated_stream": 1.0}), list[Delta | Reply](), 0
    for _ in range(40):
        try:
            pieces += [piece async for piece in worker.stream(ASK)]
        except Unavailable:
            errors += 1
    assert 5 < errors < 35
    assert pieces
    assert all(isinstance(piece, Delta) for piece in pieces)


async def test_wrong_usage_comes_with_a_good_reply() -> None:
    worker = faulty({"wrong_usage": 1.0})
    replies = [await worker.reply(ASK) for _ in range(40)]
    assert {reply.text for reply in replies} == {WORDS}
    assert len({reply.usage for reply in replies}) == 4


async def test_the_seed_decides_the_faults_in_any_order() -> None:
    asked = [f"question {number}" for number in range(300)]
    first = await outcomes(faulty(evenly(0.5), 1), asked)
    assert first == (await outcomes(faulty(evenly(0.5), 1), asked[::-1]))[::-1]
    assert first != await outcomes(faulty(evenly(0.5), 2), asked)
    assert first != await outcomes(faulty(evenly(0.5), 1, "other"), asked)


async def test_every_fault_has_its_share_and_is_counted() -> None:
    worker = faulty(evenly(0.9))
    await outcomes(worker, ["again"] * 1000)
    assert set(worker.injected) == set(FAULTS)
    assert all(60 < count < 150 for count in worker.injected.values())
