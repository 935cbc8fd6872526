"""Concurrent requests form one batch, and an error of one affects no other."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.workers.local import batching
from podium.workers.local import batching as gathering
from podium.workers.local.batching import (
    CompletionModel,
    CompletionRequest,
    ModelSpec,
    max_tokens,
    shared_completion_model,
    split_batches,
)
from support.tiny_model import model as tiny
from support.tiny_model import one_thread, tiny_model

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from podium.workers.local import captured, pretrained
from podium.workers.local.decoding import Completion, Decoder, Sampling
from podium.workers.local.lora import AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

SHORT = Sampling(3)


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    directory = tiny_model(tmp_path_factory.mktemp("model"))
    return ModelSpec(str(directory), "float32", "cpu")


@pytest.fixture
async def model(name: ModelSpec) -> AsyncIterator[CompletionModel]:
    model = CompletionModel(name)
    yield model
    model.close()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call of a decoder had."""
    sizes: list[int] = []
    complete = Decoder.complete

    def counted(decoder: Decoder, prompts: Any, *rest: Any, **settings: Any) -> list[Completion]:
        sizes.append(len(prompts))
        return complete(decoder, prompts, *rest, **settings)

    monkeypatch.setattr(Decoder, "complete", counted)
    return sizes


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_adapter(tmp_path_factory.mktemp("adapters") / "one", seed=1))


def save_adapter(directory: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    stack = AdapterStack.fresh(tiny(), ("one",), LoraShape(4))
    with torch.no_grad():
        for layer in stack.layers.values():
            layer.up[1:].normal_(std=0.3)
    stack.save("one", directory, LoraShape(4), "the base")
    return directory


def threads() -> int:
    return sum(thread.name == "podium-batches" for thread in threading.enumerate())


async def alone(
    model: CompletionModel, prompt: list[int], adapter: str | None = None
) -> Completion:
    return await model.complete(prompt, SHORT, adapter)


async def test_requests_at_one_time_are_one_batch_and_each_has_its_own_result(
    model: CompletionModel, batches: list[int]
) -> None:
    prompts = [[1 + where, 7, 40 + where % 3] for where in range(60)]
    await model.load()
    together = await asyncio.gather(*(model.complete(prompt, SHORT) for prompt in prompts))
    assert batches == [60]
    singly = [await model.complete(prompt, SHORT) for prompt in prompts[:2]]
    assert together[:2] == singly
    assert len(set(together)) > 10
    assert batches == [60, 1, 1]


async def test_requests_within_a_few_turns_are_one_batch_however_long_a_turn_takes(
    model: CompletionModel, batches: list[int]
) -> None:
    async def after(turns: int) -> Completion:
        for _ in range(turns):
            time.sleep(0.01)  # noqa: ASYNC251 - the others' work, which the loop is busy with
            await asyncio.sleep(0)
        return await model.complete([1, turns], SHORT)

    await model.load()
    await asyncio.gather(*(after(turns) for turns in range(5)))
    assert batches == [5]


async def test_requests_that_come_while_the_model_loads_are_one_batch_too(
    model: CompletionModel, batches: list[int]
) -> None:
    assert not model.is_loaded
    await asyncio.gather(*(model.complete([1, where], SHORT) for where in range(20)))
    assert batches == [20]
    assert model.is_loaded
    assert threads() == 1


async def test_requests_that_come_during_a_batch_are_the_next_one(
    model: CompletionModel, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    complete = Decoder.complete

    def waiting(*arguments: Any, **settings: Any) -> list[Completion]:
        begun.set()
        assert go_on.wait(10)
        return complete(*arguments, **settings)

    monkeypatch.setattr(Decoder, "complete", waiting)
    first = asyncio.create_task(alone(model, [1, 2]))
    assert await asyncio.to_thread(begun.wait, 10)
    others = [asyncio.create_task(alone(model, [3, where])) for where in range(9)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)
    assert batches == [1, 9]


async def test_a_batch_closes_although_others_keep_asking(
    model: CompletionModel, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LONGEST_WAIT_SECONDS", -1.0)
    await asyncio.gather(*(model.complete([1, where], SHORT) for where in range(3)))
    assert batches == [1, 1, 1]


async def test_a_batch_has_a_greatest_size(
    model: CompletionModel, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MAX_ROWS", 8)
    await asyncio.gather(*(model.complete([1, where], SHORT) for where in range(20)))
    assert batches == [8, 8, 4]


async def test_rows_of_one_batch_have_adapters_of_their_own(
    model: CompletionModel, batches: list[int], adapter: str, tmp_path: Path
) -> None:
    other = str(save_adapter(tmp_path / "other", seed=2))
    wanted = [None, adapter, other, None, other]
    mixed = await asyncio.gather(*(alone(model, [5, 6, 7], one) for one in wanted))
    assert batches == [5]
    plain, first, second = mixed[:3]
    assert len({plain, first, second}) == 3
    assert mixed[3:] == [plain, second]
    assert [await alone(model, [5, 6, 7], one) for one in wanted[:2]] == [plain, first]


# ---- captured rows


@pytest.fixture
def captured_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete in rows of fixed size, as on a GPU; four of at most 64 tokens."""
    monkeypatch.setattr(captured, "can_be_captured", lambda model: True)
    monkeypatch.setattr(captured, "MAX_ROWS", 4)
    monkeypatch.setattr(captured, "WIDTH_MULTIPLE", 16)
    monkeypatch.setattr(captured, "MAX_BYTES", 4 * 64 * captured.bytes_per_token(tiny()))


@pytest.mark.usefixtures("captured_rows")
async def test_requests_that_arrive_while_rows_are_decoded_join_them(
    name: ModelSpec, model: CompletionModel, adapter: str, tmp_path: Path
) -> None:
    other = str(save_adapter(tmp_path / "other", seed=2))
    plain = CompletionModel(name)
    asked = [
        ([1 + where, 7], Sampling(1 + 7 * where % 40), (None, adapter, other)[where % 3])
        for where in range(24)
    ]
    asked.append(([3] * 300, Sampling(2), None))  # longer than a row
    tasks = []
    for one in asked:
        tasks.append(asyncio.create_task(model.complete(*one)))
        await asyncio.sleep(0.002)
    found = await asyncio.gather(*tasks)
    with pytest.MonkeyPatch.context() as unpatched:
        unpatched.setattr(captured, "can_be_captured", lambda model: False)
        wanted = await asyncio.gather(*(plain.complete(*one) for one in asked))
    plain.close()
    assert found == wanted


@pytest.mark.usefixtures("captured_rows")
async def test_an_error_in_captured_rows_fails_the_requests_in_them_alone(
    model: CompletionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.load()
    step = captured.CapturedRows.step

    def fails(rows: Any, tokens: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(captured.CapturedRows, "step", fails)
    outcomes = await asyncio.gather(
        *(alone(model, [1, where]) for where in range(6)), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == ["out of memory"] * 6
    monkeypatch.setattr(captured.CapturedRows, "step", step)
    assert isinstance(await alone(model, [1, 2]), Completion)


# ---- what goes wrong


async def test_an_error_fails_its_batch_and_the_next_one_runs(
    model: CompletionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.load()
    complete = Decoder.complete

    def fails(decoder: Decoder, prompts: Any, *rest: Any, **settings: Any) -> list[Completion]:
        if [9, 9] in prompts:
            raise RuntimeError("out of memory")
        return complete(decoder, prompts, *rest, **settings)

    monkeypatch.setattr(Decoder, "complete", fails)
    monkeypatch.setattr(gathering, "MAX_ROWS", 2)
    outcomes = await asyncio.gather(
        *(alone(model, prompt) for prompt in ([1, 2], [3, 4], [9, 9], [5, 6], [7, 8])),
        return_exceptions=True,
    )
    assert [isinstance(outcome, Completion) for outcome in outcomes] == [
        *(True, True),
        *(False, False),
        True,
    ]
    assert str(outcomes[2]) == "out of memory"


async def test_an_invalid_adapter_fails_only_its_own_request(
    model: CompletionModel, batches: list[int], adapter: str, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    outcomes = await asyncio.gather(
        alone(model, [1, 2], missing),
        alone(model, [1, 2]),
        alone(model, [1, 2], adapter),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], ConfigError)
    assert "missing holds no adapter" in str(outcomes[0])
    assert all(isinstance(outcome, Completion) for outcome in outcomes[1:])
    assert batches == [2]
    save_adapter(Path(missing), seed=3)
    assert isinstance(await alone(model, [1, 2], missing), Completion)


async def test_a_cancelled_request_is_dropped_and_fails_no_other(
    model: CompletionModel, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    load = pretrained.load

    def waiting(*arguments: Any, **settings: Any) -> pretrained.Pretrained:
        assert go_on.wait(10)
        return load(*arguments, **settings)

    monkeypatch.setattr(pretrained, "load", waiting)
    loading = asyncio.create_task(model.load())
    tasks = [asyncio.create_task(alone(model, [1, where])) for where in range(4)]
    await asyncio.sleep(0)
    loading.cancel()
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    go_on.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, Completion) for outcome in outcomes] == [True, False, False, True]
    assert loading.cancelled()
    assert batches == [2]


async def test_a_failed_model_load_fails_all_waiters_and_is_retried(
    tmp_path: Path,
) -> None:
    model = CompletionModel(ModelSpec(f"file:{tmp_path / 'model'}", "float32", "cpu"))
    waiting = [alone(model, [1, where]) for where in range(3)]
    outcomes = await asyncio.gather(model.load(), *waiting, return_exceptions=True)
    assert all(isinstance(outcome, ConfigError) for outcome in outcomes)
    tiny_model(tmp_path / "model")
    assert isinstance(await alone(model, [1, 2]), Completion)
    model.close()


async def test_an_unknown_dtype_or_device_is_refused(name: ModelSpec) -> None:
    with pytest.raises(ConfigError, match="dtype is 'int8'; use auto"):
        await CompletionModel(name._replace(dtype="int8")).load()
    with pytest.raises(ConfigError, match="device is 'gpu'; use cpu, cuda"):
        await CompletionModel(name._replace(device="gpu")).load()


# ---- loops, threads and the end


def test_two_event_loops_ask_the_same_model(name: ModelSpec) -> None:
    model = CompletionModel(name)
    both_there = threading.Barrier(2, timeout=20)
    results: list[list[Completion]] = []

    async def submit() -> None:
        await model.load()
        both_there.wait()
        results.append(list(await asyncio.gather(*(alone(model, [1, p]) for p in range(10)))))

    asking = [threading.Thread(target=lambda: asyncio.run(submit())) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(30)
    model.close()
    assert results[0] == results[1]
    assert len(results[0]) == 10


def test_a_loop_that_is_closed_takes_nothing_from_the_others(name: ModelSpec) -> None:
    model = CompletionModel(name)
    gone = asyncio.new_event_loop()
    future: asyncio.Future[Completion] = gone.create_future()
    gone.close()
    assert model._running().submit(CompletionRequest([1, 2], SHORT, None, future))
    assert isinstance(asyncio.run(alone(model, [1, 2])), Completion)
    model.close()


async def test_closing_answers_what_was_asked_and_ends_the_thread(
    name: ModelSpec, batches: list[int]
) -> None:
    model = CompletionModel(name)
    await model.load()
    waiting = [asyncio.create_task(alone(model, [1, where])) for where in range(3)]
    await asyncio.sleep(0)
    assert threads() == 1
    model.close()
    assert threads() == 0
    assert not model.is_loaded
    assert all(isinstance(outcome, Completion) for outcome in await asyncio.gather(*waiting))
    model.close()


async def test_a_closed_model_is_loaded_again_when_it_is_next_used(name: ModelSpec) -> None:
    model = CompletionModel(name)
    first = await alone(model, [4, 5])
    model.close()
    assert await alone(model, [4, 5]) == first
    model.close()


async def test_the_last_user_unloads_the_model_and_its_memory_is_free(name: ModelSpec) -> None:
    model = CompletionModel(name)
    model.acquire()
    model.acquire()
    weights = weakref.ref((await model.load()).model)
    await model.release()
    assert model.is_loaded
    await model.release()
    assert threads() == 0
    gc.collect()
    assert weights() is None


@pytest.fixture
def watched() -> Iterator[list[BaseException]]:
    """What went wrong in threads."""
    seen: list[BaseException] = []
    before = threading.excepthook
    threading.excepthook = lambda arguments: seen.append(arguments.exc_value)  # type: ignore[arg-type]
    yield seen
    threading.excepthook = before


async def test_an_unreferenced_model_ends_its_thread(
    name: ModelSpec, watched: list[BaseException]
) -> None:
    model: CompletionModel | None = shared_completion_model(name)
    assert model is not None
    assert shared_completion_model(name) is model
    assert shared_completion_model(name._replace(dtype="float64")) is not model
    await alone(model, [1, 2])
    (thread,) = (t for t in threading.enumerate() if t.name == "podium-batches")
    model = None
    gc.collect()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert not watched
    assert not shared_completion_model(name).is_loaded


# ---- memory


def asked(*sizes: int) -> list[CompletionRequest]:
    future: Any = None
    return [CompletionRequest([1] * (size - 3), SHORT, None, future) for size in sizes]


def test_a_batch_takes_no_more_than_memory_holds() -> None:
    def sizes(most: int, *given: int) -> list[list[int]]:
        return [[one.size for one in batch] for batch in split_batches(asked(*given), most)]

    assert sizes(99, 10, 50, 10, 20, 30) == [[10, 10, 20], [30], [50]]
    assert sizes(1000, 10, 50, 10, 20, 30) == [[10, 10, 20, 30, 50]]
    assert sizes(5, 10, 20) == [[10], [20]]  # one that is too large by itself is tried alone
    assert sizes(100) == []


def test_cache_memory_is_counted_in_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    bytes_each = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, their size, 32 bits
    monkeypatch.setattr(batching, "PROCESSOR_BYTES", 1000 * bytes_each + 1)
    assert max_tokens(model) == 1000
    assert max_tokens(model.to(torch.bfloat16)) == 2000
    monkeypatch.setattr(batching, "MAX_TOKENS", 700)
    assert max_tokens(model) == 700


async def test_nothing_heavy_is_loaded_before_it_is_needed(
    name: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(pretrained, "load", never)
    model = shared_completion_model(name)
    model.acquire()
    await model.release()
    assert threads() == 0
