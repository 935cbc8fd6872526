"""Workers over transformers models: what they reply, what they count, what they refuse."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError, RequestRefused, WorkerCrashed
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import (
    Delta,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    user,
)
from podium.core.worker import Worker
from podium.workers import Endpoint, Http, connect
from podium.workers.local import weights
from support.tiny_model import CONTEXT, one_thread, tiny_gguf, tiny_model
from support.tiny_model import model as tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from podium.workers.local import pretrained
from podium.workers.local.decoding import Completion, Decoder
from podium.workers.local.lora import AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

QUESTION = Request((user("What is 12 + 7?"),), max_tokens=6)
Hire = Callable[..., Worker]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def hire(directory: Path) -> AsyncIterator[Hire]:
    """Connect a worker over the tiny model; it is closed at the end."""
    hired: list[Any] = []

    def hire(*, model: str = str(directory), limits: Limits = Limits(), **options: Any) -> Worker:
        profile = WorkerProfile(name="ada", provider="transformers", model=model, limits=limits)
        options = {"device": "cpu", "dtype": "float32", **options}
        worker = connect(profile, Endpoint(options=options), Http())
        hired.append(worker)
        return worker

    yield hire
    for worker in hired:
        await worker.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, ...]]]:
    """What each batch consisted of: prompt, sampling and choice of adapter."""
    batches: list[list[tuple[Any, ...]]] = []
    complete = Decoder.complete

    def seen(
        decoder: Decoder, prompts: Any, sampling: Any, adapter_indices: Any
    ) -> list[Completion]:
        rows = adapter_indices or [0] * len(prompts)
        batches.append(list(zip(prompts, sampling, rows, strict=True)))
        return complete(decoder, prompts, sampling, adapter_indices=adapter_indices)

    monkeypatch.setattr(Decoder, "complete", seen)
    return batches


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    stack = AdapterStack.fresh(tiny(), ("one",), LoraShape(4))
    with torch.no_grad():
        for layer in stack.layers.values():
            layer.up[1:].normal_(std=0.3)
    directory = tmp_path_factory.mktemp("adapters") / "one"
    stack.save("one", directory, LoraShape(4), "the base")
    return directory


def generated(directory: Path, text: str, tokens: int) -> str:
    """What transformers itself generates after that text."""
    loaded = pretrained.load(str(directory), device="cpu")
    prompt = loaded.tokenizer(text, add_special_tokens=False, return_tensors="pt")
    written = loaded.model.generate(**prompt, max_new_tokens=tokens, do_sample=False)
    return loaded.decode(written[0, prompt["input_ids"].shape[1] :].tolist())


# ---- replies


async def test_a_reply_is_what_the_model_generates_with_what_it_used(
    hire: Hire, directory: Path
) -> None:
    reply = await hire().reply(QUESTION)
    text = "<|im_start|>user\nWhat is 12 + 7?<|im_end|>\n<|im_start|>assistant\n"
    assert reply == Reply(
        generated(directory, text, 6),
        usage=Usage(len(pretrained_tokens(directory, text)), 6, 0, 0, 0),
        finish="length",
        model=str(directory),
    )


def pretrained_tokens(directory: Path, text: str) -> list[int]:
    loaded = pretrained.load(str(directory), device="cpu")
    tokens: list[int] = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


async def test_a_reply_that_the_model_ends_has_stopped(
    hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await hire().reply(QUESTION)
    assert whole.usage.output_tokens == 6
    monkeypatch.setattr(Decoder, "is_end", lambda decoder, tokens: torch.ones_like(tokens).bool())
    reply = await hire().reply(QUESTION)
    assert (reply.finish, reply.usage.output_tokens) == ("stop", 1)
    assert whole.text.startswith(reply.text)


async def test_a_prefilled_reply_is_continued_and_returned_whole(
    hire: Hire, directory: Path
) -> None:
    reply = await hire().reply(replace(QUESTION, prefill="It is 1"))
    begun = "<|im_start|>user\nWhat is 12 + 7?<|im_end|>\n<|im_start|>assistant\nIt is 1"
    assert reply.text == "It is 1" + generated(directory, begun, 6)


async def test_the_workers_own_system_prompt_comes_first(
    hire: Hire, directory: Path, asked: list[Any]
) -> None:
    worker = hire(system="You add.")
    await worker.reply(replace(QUESTION, messages=(system("Be brief."), *QUESTION.messages)))
    ((prompt, *_),) = asked[-1]
    text = pretrained.load(str(directory), device="cpu").tokenizer.decode(prompt)
    assert text.startswith("<|im_start|>system\nYou add.\n\nBe brief.<|im_end|>\n<|im_start|>user")


async def test_a_conversation_is_rendered_by_turn_without_thinking(
    hire: Hire, directory: Path, asked: list[Any]
) -> None:
    thought = Message("assistant", (Thinking("hmm", model="other"), Text("Nineteen.")))
    await hire().reply(Request((user("12 + 7?"), thought, user("Sure?")), max_tokens=1))
    ((prompt, *_),) = asked[-1]
    assert pretrained.load(str(directory), device="cpu").tokenizer.decode(prompt) == (
        "<|im_start|>user\n12 + 7?<|im_end|>\n<|im_start|>assistant\nNineteen.<|im_end|>\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_workers_with_and_without_an_adapter_share_one_model_and_one_batch(
    hire: Hire, adapter: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, adapted = hire(), hire(adapter=str(adapter))
    replies = await asyncio.gather(
        *(worker.reply(QUESTION) for worker in (plain, adapted, adapted, plain))
    )
    assert [[choice for *_, choice in batch] for batch in asked] == [[0, 1, 1, 0]]
    assert replies[0] == replies[3]
    assert replies[1] == replies[2]
    assert replies[0].text != replies[1].text


async def test_options_fill_in_what_a_request_omits(hire: Hire, asked: list[Any]) -> None:
    worker = hire(temperature=0.5, top_p=0.9, limits=Limits(max_output_tokens=3))
    await worker.reply(replace(QUESTION, max_tokens=None))
    ((_, sampling, _),) = asked[-1]
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.9)
    assert (sampling.max_tokens, sampling.seed) == (3, None)
    await worker.reply(replace(QUESTION, max_tokens=2, temperature=0.0, top_p=1.0, seed=8))
    ((_, sampling, _),) = asked[-1]
    assert (sampling.temperature, sampling.top_p) == (0.0, 1.0)
    assert (sampling.max_tokens, sampling.seed) == (2, 8)


async def test_a_seed_repeats_a_reply(hire: Hire) -> None:
    drawn = replace(QUESTION, temperature=1.5, seed=8)
    worker = hire()
    first = await worker.reply(drawn)
    assert await worker.reply(drawn) == first
    assert (await worker.reply(replace(drawn, seed=9))).text != first.text


async def test_a_streamed_reply_comes_in_one_piece(hire: Hire) -> None:
    worker = hire()
    *deltas, reply = [piece async for piece in worker.stream(QUESTION)]
    assert isinstance(reply, Reply)
    assert deltas == [Delta(reply.text)]
    assert reply == await worker.reply(QUESTION)


async def test_a_directory_may_be_named_from_where_one_is(
    hire: Hire, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory.parent)
    reply = await hire().reply(QUESTION)
    for name in (directory.name, f"file:{directory.name}"):
        assert (await hire(model=name).reply(QUESTION)).text == reply.text


async def test_weights_in_one_file_answer_too(hire: Hire, tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path / "tiny.gguf")
    from_file = await hire(model=f"file:{file}").reply(QUESTION)
    assert from_file.text == (await hire().reply(QUESTION)).text


async def test_weights_that_podium_keeps_are_fetched_before_the_first_call_and_only_then(
    hire: Hire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny_gguf(tmp_path / "tiny.gguf")
    fetched = []

    async def locate(name: str) -> Path:
        fetched.append(name)
        return file

    found = weights.LocalModel(name="smollm2-135m-instruct", path=file, present=True)
    monkeypatch.setattr(weights, "locate", locate)
    monkeypatch.setattr(weights, "find", lambda name: found)
    worker = hire(model="smollm2-135m-instruct")
    assert fetched == []
    await worker.reply(QUESTION)
    await worker.reply(QUESTION)
    assert fetched == ["smollm2-135m-instruct"]


async def test_a_reply_stays_within_what_the_model_reads(hire: Hire, asked: list[Any]) -> None:
    worker = hire()
    long = replace(QUESTION, messages=(user("1" * (CONTEXT - 20)),), max_tokens=50)
    await worker.reply(long)
    ((prompt, sampling, _),) = asked[-1]
    assert len(prompt) + sampling.max_tokens == CONTEXT
    with pytest.raises(RequestRefused, match=f"has .* tokens, the model's context {CONTEXT}"):
        await worker.reply(replace(QUESTION, messages=(user("1" * CONTEXT),)))


# ---- what is refused

PICTURE = Message("user", (Text("What is this?"), Image("image/png", "QUJD")))
CALL = Message("assistant", (ToolCall("a", "clock", "{}"),))
RESULT = Message("tool", (ToolResult("a", "noon"),))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": {}}, "'ada' cannot follow a JSON schema; use llamacpp"),
        ({"grammar": "root ::= 'a'"}, "'ada' cannot follow a grammar"),
        ({"tools": (Tool("clock", "the time", {}),)}, "'ada' cannot follow tools"),
        ({"stop": ("\n",)}, "'ada' cannot follow stop sequences"),
        ({"messages": (PICTURE,)}, "'ada' takes no image in user messages"),
        ({"messages": (CALL,)}, "'ada' takes no tool call in assistant messages"),
        ({"messages": (assistant("hm"), RESULT)}, "'ada' takes no tool result in tool messages"),
    ],
)
async def test_unsupported_requests_are_refused_before_loading(
    hire: Hire, changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "load", None)
    with pytest.raises(RequestRefused, match=reason):
        await hire().reply(replace(QUESTION, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
)
async def test_sampling_that_makes_no_sense_is_refused(
    hire: Hire, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestRefused, match=f"worker 'ada': {reason}"):
        await hire().reply(replace(QUESTION, **changes))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"adaptor": "x"}, "the option 'adaptor', .* did you mean 'adapter'?"),
        ({"grammar": "x"}, "it takes system, adapter, temperature, top_p, dtype, device"),
        ({"adapter": 3}, "adapter = 3 in its options; give text"),
        ({"temperature": "hot"}, "temperature = 'hot' in its options; give a number"),
        ({"top_p": True}, "top_p = True in its options; give a number"),
        ({"top_p": 0}, "top_p = 0 in its options; give more than 0, and at most 1"),
        ({"temperature": -1}, "temperature = -1 in its options; give 0 or more"),
        ({"temperature": float("nan")}, "temperature = nan in its options; give 0 or more"),
    ],
)
def test_an_option_that_is_none_is_refused_and_the_nearest_is_named(
    directory: Path, options: dict[str, Any], reason: str
) -> None:
    profile = WorkerProfile(name="ada", provider="transformers", model=str(directory))
    with pytest.raises(ConfigError, match=reason):
        connect(profile, Endpoint(options=options), Http())


async def test_an_adapter_that_is_not_there_is_refused_and_can_be_put_there(
    hire: Hire, adapter: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "adapter"
    worker = hire(adapter=str(missing))
    with pytest.raises(RequestRefused, match="worker 'ada': .*adapter holds no adapter; name"):
        await worker.reply(QUESTION)
    missing.symlink_to(adapter)
    assert await worker.reply(QUESTION) == await hire(adapter=f"file:{adapter}").reply(QUESTION)


async def test_a_model_that_is_not_there_is_refused(hire: Hire, tmp_path: Path) -> None:
    for model in (str(tmp_path / "none"), "smollm3", f"file:{tmp_path}/none.gguf"):
        with pytest.raises(RequestRefused, match="worker 'ada': "):
            await hire(model=model).reply(QUESTION)


async def test_a_fault_of_the_machine_is_the_workers_and_not_the_requests(
    hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    worker = hire()
    with monkeypatch.context() as broken:
        broken.setattr(Decoder, "complete", fails)
        with pytest.raises(WorkerCrashed, match="worker 'ada': out of memory"):
            await worker.reply(QUESTION)
    assert (await worker.reply(QUESTION)).text


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_the_packages_the_extra_is_named(
    directory: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    profile = WorkerProfile(name="ada", provider="transformers", model=str(directory))
    with pytest.raises(ConfigError, match=rf"needs the package {package}; .*\[train\]"):
        connect(profile, Endpoint(), Http())


# ---- the model's life


async def test_connecting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from podium.core.pool import WorkerProfile; "
        "from podium.workers import Endpoint, Http, connect; "
        "connect(WorkerProfile(name='a', provider='transformers', model='m'), Endpoint(), Http());"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=subprocess.PIPE
    )
    said, _ = await done.communicate()
    assert said.split() == [b"False", b"False"]


async def test_the_model_is_unloaded_with_the_last_of_its_workers(hire: Hire) -> None:
    first, second = hire(), hire()
    await first.reply(QUESTION)
    for worker, alive in ((first, 1), (first, 1), (second, 0)):
        await worker.close()  # type: ignore[attr-defined]
        assert sum(thread.name == "podium-batches" for thread in threading.enumerate()) == alive
