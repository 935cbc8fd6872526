import time

import pytest

from podium.core.errors import Unavailable
from podium.core.pool import WorkerProfile
from podium.core.request import NO_USAGE, Delta, Price, Reply, Request, Usage, user
from podium.core.worker import Worker
from podium.workers import ScriptedWorker

ASKED = Request((user("two words"),))


def test_it_is_a_worker() -> None:
    assert isinstance(ScriptedWorker("solver", "42"), Worker)


def test_a_name_is_enough_of_a_profile() -> None:
    price = Price(input=1, output=2)
    worker = ScriptedWorker("solver", "42", description="adds", price=price)
    assert worker.profile == WorkerProfile(
        name="solver", description="adds", provider="scripted", model="solver", price=price
    )


async def test_lines_come_in_turn_and_the_last_one_repeats() -> None:
    worker = ScriptedWorker("solver", ["one", "two"])
    assert [(await worker.reply(ASKED)).text for _ in range(3)] == ["one", "two", "two"]


async def test_a_function_answers_the_request() -> None:
    worker = ScriptedWorker("echo", lambda request: request.text.upper())
    assert (await worker.reply(ASKED)).text == "TWO WORDS"


async def test_an_error_in_the_script_is_raised_in_its_turn() -> None:
    worker = ScriptedWorker("flaky", [Unavailable("busy"), "42"])
    with pytest.raises(Unavailable, match="busy"):
        await worker.reply(ASKED)
    assert (await worker.reply(ASKED)).text == "42"


async def test_words_are_counted_as_tokens() -> None:
    reply = await ScriptedWorker("solver", "one two three").reply(ASKED)
    assert reply.usage == Usage(2, 3, 0, 0, 0)


async def test_a_given_usage_is_reported_for_every_reply() -> None:
    usage = Usage(100, 10, 50, 5, 0)
    assert (await ScriptedWorker("solver", "42", usage=usage).reply(ASKED)).usage == usage


async def test_a_whole_reply_in_the_script_keeps_its_own_usage_and_model() -> None:
    scripted = Reply("42", NO_USAGE, model="other")
    assert await ScriptedWorker("solver", scripted).reply(ASKED) == scripted


async def test_a_stream_is_the_reply_word_by_word_and_then_whole() -> None:
    worker = ScriptedWorker("solver", "  one two\n three ")
    *deltas, reply = [piece async for piece in worker.stream(ASKED)]
    assert deltas == [Delta("  one"), Delta(" two"), Delta("\n three"), Delta(" ")]
    assert reply == Reply("  one two\n three ", Usage(2, 3, 0, 0, 0), model="solver")


async def test_a_stream_hands_out_as_many_words_at_a_time_as_asked() -> None:
    worker = ScriptedWorker("solver", "one two three", chunk=2)
    deltas = [piece.text async for piece in worker.stream(ASKED) if isinstance(piece, Delta)]
    assert deltas == ["one two", " three"]


async def test_the_last_requests_are_kept_and_all_are_counted() -> None:
    worker = ScriptedWorker("solver", "42", keep_requests=2)
    asked = [Request((user(str(number)),)) for number in range(3)]
    for request in asked:
        await worker.reply(request)
    assert list(worker.requests) == asked[1:]
    assert worker.calls == 3


async def test_a_delay_passes_before_the_reply() -> None:
    started = time.perf_counter()
    await ScriptedWorker("slow", "42", delay_seconds=0.02).reply(ASKED)
    assert time.perf_counter() - started >= 0.02
