from __future__ import annotations

import pytest

from podium.core.errors import UsageError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, user
from podium.core.worker import Worker
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes import FlakyWorker
from podium_lab.etudes.values import UNSURE


def request(text: str) -> Request:
    return Request((user(text),))


def flaky(share: float, seed: int = 0, name: str = "words") -> FlakyWorker:
    profile = WorkerProfile(name=name, description="knows words")
    return FlakyWorker(ScriptedWorker(profile, "an answer"), share, seed)


async def test_it_forgets_about_its_share_of_what_it_is_asked() -> None:
    worker = flaky(0.2)
    replies = [(await worker.reply(request(f"double {n}"))).text for n in range(1000)]
    assert set(replies) == {UNSURE, "an answer"}
    assert 0.15 < replies.count(UNSURE) / 1000 < 0.25


async def test_the_same_request_always_gives_the_same() -> None:
    for n in range(20):
        one, other = flaky(0.5), flaky(0.5)
        assert await one.reply(request(f"halve {n}")) == await other.reply(request(f"halve {n}"))


async def test_another_request_seed_or_worker_is_drawn_anew() -> None:
    async def forgotten(worker: FlakyWorker, text: str) -> list[bool]:
        return [(await worker.reply(request(f"{text} {n}"))).text == UNSURE for n in range(50)]

    first = await forgotten(flaky(0.5), "double")
    assert first != await forgotten(flaky(0.5), "Double")
    assert first != await forgotten(flaky(0.5, seed=1), "double")
    assert first != await forgotten(flaky(0.5, name="lists"), "double")


async def test_a_worker_that_forgets_is_not_asked_and_one_that_does_not_is() -> None:
    inner = ScriptedWorker("words", "an answer")
    assert (await FlakyWorker(inner, 1.0).reply(request("double 4"))).text == UNSURE
    assert inner.calls == 0
    assert (await FlakyWorker(inner, 0.0).reply(request("double 4"))).text == "an answer"
    assert inner.calls == 1


async def test_it_streams_what_it_replies() -> None:
    for share in (0.0, 1.0):
        worker = flaky(share)
        pieces = [piece async for piece in worker.stream(request("double 4"))]
        whole = await worker.reply(request("double 4"))
        assert pieces[-1] == whole
        assert "".join(p.text for p in pieces if isinstance(p, Delta)) == whole.text
        assert isinstance(pieces[-1], Reply)


def test_it_is_a_worker_with_the_profile_of_the_one_inside() -> None:
    worker = flaky(0.1)
    assert isinstance(worker, Worker)
    assert worker.profile.description == "knows words"


def test_a_share_beyond_all_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        flaky(1.5)
