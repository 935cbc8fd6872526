"""Local models: what is sent to llama.cpp, and what the real one does with it."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from podium.core.errors import ConfigError, RequestRefused
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import Message, Request, Usage, assistant, system, user
from podium.workers import Endpoint, Http, connect, llamacpp
from podium.workers.llamacpp import LlamaCppWorker
from podium.workers.local import weights as local_weights
from podium.workers.local.llama_server import ModelServer, ModelSettings, SharedModel, shared_model
from support.llama_server import post
from support.local_weights import MODEL, smollm2
from support.lora import write_adapter
from support.shipped import Ship, ship

if TYPE_CHECKING:
    from workers.conftest import Streamed, Vendor

__all__ = ["ship", "smollm2"]

QUESTION = Request((user("What is the capital of Japan?"),))

Hire = Callable[..., LlamaCppWorker]


@pytest.fixture
def hire(http: Http) -> Hire:
    """Connect to a local model."""

    def hire(
        model: str = MODEL, *, max_tokens: int | None = None, name: str = "ada", **options: Any
    ) -> LlamaCppWorker:
        profile = WorkerProfile(
            name=name,
            provider="llamacpp",
            model=model,
            limits=Limits(max_output_tokens=max_tokens),
        )
        worker = connect(profile, Endpoint(options=options), http)
        assert isinstance(worker, LlamaCppWorker)
        return worker

    return hire


class Loaded:
    """Stands for a model that is loaded already, and listens at a vendor's address."""

    def __init__(self, address: str) -> None:
        self.settings: list[ModelSettings] = []
        self.adapters: list[str] = []
        self.held = 0
        self.served = 0
        self._address = address

    def shared_model(self, settings: ModelSettings) -> Loaded:
        self.settings.append(settings)
        return self

    def acquire(self, adapter: str = "") -> None:
        self.held += 1
        self.adapters += [adapter] * bool(adapter)

    async def release(self) -> None:
        self.held -= 1

    async def serving(self, adapter: str = "") -> ModelServer:
        self.served += 1
        return ModelServer(self._address, "the-key", tuple(self.adapters), cast("Any", None))


@pytest.fixture
def loaded(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    loaded = Loaded(vendor.url)
    monkeypatch.setattr(llamacpp, "shared_model", loaded.shared_model)
    vendor.says(answer("Tokyo."))
    return loaded


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A file that looks like a model until it is loaded."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


def answer(text: str) -> dict[str, Any]:
    return {
        "model": "tiny.gguf",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 37,
            "completion_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 36},
        },
    }


async def test_a_request_goes_out_as_chat_completions_with_the_servers_own_key(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    reply = await hire(weights).reply(QUESTION)
    assert vendor.received[-1].path == "/v1/chat/completions"
    assert vendor.received[-1].headers["authorization"] == "Bearer the-key"
    assert vendor.body["messages"] == [{"role": "user", "content": QUESTION.text}]
    assert reply.text == "Tokyo."
    assert reply.usage == Usage(37, 8, 36, None, 0)
    assert loaded.settings == [ModelSettings(path=weights)]


async def test_the_workers_system_prompt_comes_before_the_requests_own(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    worker = hire(weights, system="Be brief.")
    await worker.reply(QUESTION)
    assert vendor.body["messages"][0] == {"role": "system", "content": "Be brief."}
    await worker.reply(Request((system("Speak French."), *QUESTION.messages)))
    assert vendor.body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nSpeak French."},
        {"role": "user", "content": QUESTION.text},
    ]


async def test_sampling_options_hold_where_the_request_does_not_say(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    worker = hire(weights, temperature=0, top_p=0.9, seed=7, max_tokens=64)
    await worker.reply(QUESTION)
    said = {name: vendor.body[name] for name in ("temperature", "top_p", "seed", "max_tokens")}
    assert said == {"temperature": 0, "top_p": 0.9, "seed": 7, "max_tokens": 64}
    await worker.reply(Request(QUESTION.messages, temperature=1.0, seed=0, max_tokens=5))
    said = {name: vendor.body[name] for name in ("temperature", "top_p", "seed", "max_tokens")}
    assert said == {"temperature": 1.0, "top_p": 0.9, "seed": 0, "max_tokens": 5}


async def test_options_that_are_no_settings_go_into_the_body(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    await hire(weights, repeat_penalty=1.1, system="Be brief.", slots=2).reply(QUESTION)
    assert vendor.body["repeat_penalty"] == 1.1
    assert not {"system", "slots", "lora"} & set(vendor.body)
    assert loaded.settings == [ModelSettings(path=weights, slots=2)]


async def test_a_grammar_and_a_schema_are_sent(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    worker = hire(weights)
    await worker.reply(Request(QUESTION.messages, grammar='root ::= "yes"'))
    assert vendor.body["grammar"] == 'root ::= "yes"'
    await worker.reply(Request(QUESTION.messages, schema={"type": "integer"}))
    assert vendor.body["response_format"]["json_schema"]["schema"] == {"type": "integer"}


async def test_an_adapter_is_asked_for_by_its_place_among_those_loaded(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    for path in (first, second):
        path.touch()
    plain = hire(weights)
    hire(weights, adapter=str(first))
    worker = hire(weights, adapter=f"file:{second}", adapter_scale=0.5)
    await worker.reply(QUESTION)
    assert vendor.body["lora"] == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.5}]
    await plain.reply(QUESTION)
    assert vendor.body["lora"] == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}]


async def test_an_adapter_that_podium_ships_is_asked_for_by_its_name(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str, ship: Ship
) -> None:
    path = ship("etude-lists")
    await hire(weights, adapter="embedded/etude-lists").reply(QUESTION)
    assert loaded.adapters == [str(path)]
    assert vendor.body["lora"] == [{"id": 0, "scale": 1.0}]


def test_an_adapter_that_podium_does_not_ship_is_refused_when_connecting(
    hire: Hire, weights: str, ship: Ship
) -> None:
    with pytest.raises(ConfigError, match="embedded adapter not found: 'embedded/etude-lists'"):
        hire(weights, adapter="embedded/etude-lists")


async def test_a_template_belongs_to_how_the_model_is_loaded(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str
) -> None:
    await hire(weights, template="chatml").reply(QUESTION)
    assert loaded.settings == [ModelSettings(path=weights, template="chatml")]
    assert "template" not in vendor.body


async def test_a_prefill_is_in_the_reply_once_whole_or_streamed(
    vendor: Vendor, loaded: Loaded, hire: Hire, weights: str, streamed: Streamed
) -> None:
    request = Request(QUESTION.messages, prefill="It is ")
    vendor.says(answer("It is Tokyo."))
    vendor.streams(
        {"choices": [{"delta": {"content": "Tokyo."}, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    )
    worker = hire(weights)
    await worker.reply(QUESTION)
    whole = await worker.reply(request)
    assert vendor.body["messages"][-1] == {"role": "assistant", "content": "It is "}
    deltas, piecewise = await streamed(worker, request)
    assert whole.text == piecewise.text == "It is Tokyo."
    assert "".join(delta.text for delta in deltas) == "It is Tokyo."


async def test_a_model_can_be_loaded_before_anything_is_asked(
    loaded: Loaded, hire: Hire, weights: str, vendor: Vendor
) -> None:
    await hire(weights).load()
    assert loaded.served == 1
    assert vendor.received == []
    with pytest.raises(RequestRefused, match="check the path"):
        await hire(weights.replace("tiny", "gone")).load()


async def test_a_closed_worker_gives_the_model_up_once(
    loaded: Loaded, hire: Hire, weights: str
) -> None:
    worker = hire(weights)
    assert loaded.held == 1
    await worker.close()
    await worker.close()
    assert loaded.held == 0


async def test_weights_that_are_not_here_name_the_command_that_fetches_them(
    hire: Hire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setenv("PODIUM_OFFLINE", "1")
    with pytest.raises(
        RequestRefused, match=f"'ada': .* not at {tmp_path}/.*`podium models pull {MODEL}`"
    ):
        await hire().reply(QUESTION)
    with pytest.raises(RequestRefused, match=f"no file {tmp_path}/no.gguf; check the path"):
        await hire(f"{tmp_path}/no.gguf").reply(QUESTION)


async def test_without_openmp_nothing_is_fetched(
    hire: Hire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(RequestRefused, match="install the system package libgomp1"):
        await hire("smollm2-135m-instruct").reply(QUESTION)
    assert os.listdir(tmp_path) == []


async def test_weights_that_are_not_here_are_fetched_with_the_first_call(
    loaded: Loaded,
    hire: Hire,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = "hf:owner/repository/tiny.gguf"
    pulled = []

    async def pull(name: str, progress: object) -> Path:
        pulled.append(name)
        path = local_weights.find(name).path
        path.parent.mkdir(parents=True)
        path.write_bytes(b"GGUF")
        return path

    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setattr(local_weights, "pull", pull)
    worker = hire(model)
    assert pulled == []
    for _ in range(2):
        assert (await worker.reply(QUESTION)).text == "Tokyo."
    assert pulled == [model]
    (line,) = caplog.messages
    assert line.startswith(f"downloading the weights of {model} to ")


async def test_an_adapter_that_is_not_here_is_named(
    hire: Hire, weights: str, tmp_path: Path
) -> None:
    worker = hire(weights, adapter=f"{tmp_path}/none.gguf")
    with pytest.raises(RequestRefused, match=r"'ada': there is no file .*none\.gguf"):
        await worker.reply(QUESTION)


def test_an_unknown_model_is_refused_when_connecting(hire: Hire) -> None:
    with pytest.raises(ConfigError, match="local model not found: 'gpt-5'"):
        hire("gpt-5")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"system": 3}, "system = 3 in its options; give text"),
        ({"slots": "two"}, "slots = 'two' in its options; give a whole number from 1 on"),
        ({"context": 0}, "context = 0 in its options; give a whole number from 1 on"),
        ({"threads": True}, "threads = True in its options; give a whole number"),
        ({"temperature": "hot"}, "temperature = 'hot' in its options; give a number"),
        ({"template": "chat"}, "template = 'chat' in its options; give chatml, or a Jinja"),
        ({"n_predict": 9}, "sets n_predict in its options; set limits.max_output_tokens instead"),
        ({"n": 8}, "sets n in its options, which Podium writes itself"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_when_connecting(
    hire: Hire, weights: str, options: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        hire(weights, **options)


def test_without_llamacpps_package_the_error_says_what_to_install(
    hire: Hire, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "xllamacpp" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(ConfigError, match="needs the package xllamacpp; pip install xllamacpp"):
        hire(weights)


# From here on the model is real. One thread, so that tests beside these do not slow it down.
LOADED: dict[str, Any] = {"threads": 1, "context": 4096, "slots": 2}


@pytest.fixture(scope="module")
def base(smollm2: Path) -> Iterator[SharedModel]:
    """The loaded model, kept from test to test."""
    model = shared_model(ModelSettings(path=str(smollm2), **LOADED))
    yield model
    asyncio.run(model.close())


@pytest.fixture
def smol(base: SharedModel, hire: Hire) -> LlamaCppWorker:
    return hire(**LOADED, temperature=0, max_tokens=48)


@pytest.mark.weights
async def test_the_real_model_knows_the_capital_of_japan(smol: LlamaCppWorker) -> None:
    reply = await smol.reply(QUESTION)
    assert "Tokyo" in reply.text
    assert reply.finish == "stop"
    assert reply.usage.input_tokens is not None
    assert reply.usage.input_tokens > 20
    assert reply.usage.output_tokens is not None
    assert reply.usage.output_tokens > 3
    assert reply.model == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.weights
async def test_the_real_model_streams_its_whole_reply(
    smol: LlamaCppWorker, streamed: Streamed
) -> None:
    for request in (QUESTION, Request(QUESTION.messages, prefill="The answer is")):
        whole = await smol.reply(request)
        deltas, piecewise = await streamed(smol, request)
        assert piecewise.text == whole.text
        assert whole.text.startswith(request.prefill)
        assert "".join(delta.text for delta in deltas) == whole.text
        assert len(deltas) > 2
        assert piecewise.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.weights
async def test_calls_after_a_streamed_one_find_the_real_model_there(
    smol: LlamaCppWorker, streamed: Streamed
) -> None:
    brief = Request(QUESTION.messages, max_tokens=1)
    for _ in range(20):
        await streamed(smol, brief)
        assert (await smol.reply(brief)).usage.output_tokens == 1


@pytest.mark.weights
async def test_the_real_model_reads_a_repeated_prompt_from_its_cache(smol: LlamaCppWorker) -> None:
    await smol.reply(QUESTION)
    again = await smol.reply(QUESTION)
    assert again.usage.cached_input_tokens
    assert again.usage.input_tokens
    assert 0 < again.usage.cached_input_tokens < again.usage.input_tokens


@pytest.mark.weights
async def test_the_real_model_follows_a_grammar_and_a_schema(smol: LlamaCppWorker) -> None:
    reply = await smol.reply(Request(QUESTION.messages, grammar='root ::= "[" [0-9] "]"'))
    assert reply.text in {f"[{digit}]" for digit in range(10)}
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "old": {"type": "boolean"}},
        "required": ["city", "old"],
        "additionalProperties": False,
    }
    reply = await smol.reply(Request(QUESTION.messages, schema=schema))
    document = json.loads(reply.text)
    assert set(document) == {"city", "old"}
    assert isinstance(document["old"], bool)


@pytest.mark.weights
async def test_the_real_model_repeats_itself_with_the_same_seed_alone(
    smol: LlamaCppWorker,
) -> None:
    def asked(seed: int) -> Request:
        return Request((user("Invent a name."),), temperature=1.5, seed=seed, max_tokens=16)

    first, same, other = [(await smol.reply(asked(seed))).text for seed in (1, 1, 2)]
    assert first == same
    assert first != other


@pytest.mark.weights
async def test_the_real_model_stops_at_a_stop_and_at_its_length(smol: LlamaCppWorker) -> None:
    stopped = await smol.reply(Request(QUESTION.messages, stop=("Tokyo",)))
    assert stopped.finish == "stop"
    assert stopped.text
    assert "Tokyo" not in stopped.text
    cut = await smol.reply(Request(QUESTION.messages, max_tokens=2))
    assert cut.finish == "length"
    assert cut.usage.output_tokens == 2


@pytest.mark.weights
async def test_inputs_unsupported_by_the_model_are_refused(smol: LlamaCppWorker) -> None:
    with pytest.raises(RequestRefused, match="exceeds the available context size"):
        await smol.reply(Request((user("word " * 5000),)))
    with pytest.raises(RequestRefused, match="failed to parse grammar"):
        await smol.reply(Request(QUESTION.messages, grammar="root ::= ["))


@pytest.mark.weights
async def test_two_requests_run_at_once_on_one_loaded_model(
    smol: LlamaCppWorker, hire: Hire
) -> None:
    other = hire(name="bob", **LOADED, temperature=0, max_tokens=48)
    order: list[str] = []

    async def listen(worker: LlamaCppWorker) -> None:
        request = Request((user("Tell me a long story."),))
        async for _ in worker.stream(request):
            order.append(worker.profile.name)  # noqa: PERF401 - the order of both matters

    await asyncio.gather(listen(smol), listen(other))
    assert len(order) > 60
    turns = sum(one != next_one for one, next_one in itertools.pairwise(order))
    assert turns > 10


@pytest.fixture
async def single(smollm2: Path, hire: Hire) -> AsyncIterator[LlamaCppWorker]:
    """A worker with one slot, that never ends by itself."""
    worker = hire(**LOADED | {"slots": 1}, temperature=0, ignore_eos=True, max_tokens=4000)
    yield worker
    await worker.close()


@pytest.mark.weights
async def test_a_cancelled_reply_frees_its_slot(
    single: LlamaCppWorker,
) -> None:
    endless = Request((user("Write a long book."),))
    brief = Request(QUESTION.messages, max_tokens=1)
    async with aclosing(single.stream(endless)) as pieces:
        async for _ in pieces:
            break
    await asyncio.wait_for(single.reply(brief), 20)
    waiting = asyncio.create_task(single.reply(endless))
    await asyncio.wait((waiting,), timeout=0.3)
    waiting.cancel()
    await asyncio.wait_for(single.reply(brief), 20)
    assert waiting.cancelled()


@pytest.mark.weights
async def test_loading_leaves_the_event_loop_free(single: LlamaCppWorker) -> None:
    loading = asyncio.create_task(single.reply(Request(QUESTION.messages, max_tokens=1)))
    turns = 0
    while not loading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert (await loading).finish == "length"
    assert turns > 20


@pytest.fixture
async def served(
    smollm2: Path, hire: Hire, tmp_path: Path
) -> AsyncIterator[dict[str, LlamaCppWorker]]:
    """Workers over one process: without an adapter, with one or the other, with one at nothing."""
    paths = {"first": tmp_path / "first.gguf", "second": tmp_path / "second.gguf"}
    write_adapter(paths["first"], "blk.2.ffn_down.weight", 1536, 576, 1.0)
    write_adapter(paths["second"], "blk.1.ffn_down.weight", 1536, 576, 0.6)
    loading = {"threads": 1, "slots": 1, "context": 2048, "template": "chatml"}
    common = loading | {"temperature": 0, "max_tokens": 6}
    workers = {
        "plain": hire(**common),
        "first": hire(**common, adapter=str(paths["first"])),
        "second": hire(**common, adapter=str(paths["second"])),
        "silent": hire(**common, adapter=str(paths["first"]), adapter_scale=0),
    }
    yield workers
    for worker in workers.values():
        await worker.close()


@pytest.mark.weights
async def test_an_adapter_changes_the_replies_of_its_own_worker_alone(
    served: dict[str, LlamaCppWorker],
) -> None:
    said = {name: (await worker.reply(QUESTION)).text for name, worker in served.items()}
    assert len({said["plain"], said["first"], said["second"]}) == 3
    assert said["silent"] == said["plain"]


@pytest.mark.weights
async def test_no_worker_answers_from_what_an_adapter_of_another_has_read(
    served: dict[str, LlamaCppWorker],
) -> None:
    subtasks = ("What is the capital of Japan?", "What is the capital of Japan, in one word?")
    requests = [Request((user(subtask),)) for subtask in subtasks]
    del served["silent"]
    calls = [(name, request) for request in requests for name in served]
    fresh = {}
    for name, request in calls:
        fresh[name, request] = (await served[name].reply(request)).text
    again = list(itertools.chain(calls[::-1], calls[::2], calls, calls[1::2]))
    for name, request in again:
        assert (await served[name].reply(request)).text == fresh[name, request], name
    at_once = await asyncio.gather(*(served[name].reply(request) for name, request in calls))
    assert [reply.text for reply in at_once] == [fresh[call] for call in calls]


@pytest.mark.weights
async def test_a_prompt_that_an_adapter_has_read_is_kept_while_others_answer(
    served: dict[str, LlamaCppWorker],
) -> None:
    roster = system("You plan who does what. " + "One of them counts, another one adds. " * 5)
    await served["first"].reply(Request((roster, user("How many?"))))
    for name in ("second", "plain"):
        await served[name].reply(Request((system("You plan who does it."), user("How much?"))))
    again = (await served["first"].reply(Request((roster, user("How long?"))))).usage
    assert again.cached_input_tokens
    assert again.input_tokens
    assert again.cached_input_tokens > again.input_tokens - 12


CHATML = {
    "a subtask": (user("  Add 17 and 25.\n\n7 is <odd>, “é” 日本 \n"),),
    "a prompt": (system("You plan.\n0: adds\n1: counts"), user("How many?")),
    "a second round": (system("You plan."), user("How?"), assistant("So."), user("And now?")),
}


@pytest.mark.weights
@pytest.mark.parametrize("messages", CHATML.values(), ids=CHATML)
async def test_in_chatml_the_real_model_reads_the_turns_and_nothing_else(
    smollm2: Path, hire: Hire, messages: tuple[Message, ...]
) -> None:
    worker = hire(template="chatml", threads=1, temperature=0, max_tokens=8)
    model = shared_model(ModelSettings(path=str(smollm2), template="chatml", threads=1))
    reply = await worker.reply(Request(messages))
    server = await model.serving()
    turns = "".join(f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n" for turn in messages)
    prompt = f"{turns}<|im_start|>assistant\n"
    sent = {"messages": [{"role": turn.role, "content": turn.text} for turn in messages]}
    assert post(server, "/apply-template", sent)["prompt"] == prompt
    tokens = post(server, "/tokenize", {"content": prompt, "parse_special": True})["tokens"]
    assert reply.usage.input_tokens == len(tokens)
    asked = {"prompt": tokens, "n_predict": 8, "temperature": 0, "cache_prompt": False}
    assert post(server, "/completion", asked)["content"] == reply.text
    await worker.close()


@pytest.mark.weights
async def test_the_real_models_own_template_adds_a_system_prompt_where_there_is_none(
    smol: LlamaCppWorker, base: SharedModel
) -> None:
    await smol.reply(Request(QUESTION.messages, max_tokens=1))
    sent = {"messages": [{"role": "user", "content": QUESTION.text}]}
    rendered = post(await base.serving(), "/apply-template", sent)["prompt"]
    assert rendered.startswith("<|im_start|>system\nYou are a helpful AI assistant")


@pytest.mark.weights
async def test_a_file_that_is_no_model_is_refused_with_the_reason(
    hire: Hire, smollm2: Path, tmp_path: Path
) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("these are words")
    with pytest.raises(RequestRefused, match=r"cannot load .*text\.gguf: .*invalid magic"):
        await hire(str(path)).reply(QUESTION)


@pytest.mark.weights
def test_a_program_that_used_a_model_ends_at_once_and_prints_nothing_of_llamacpps(
    smollm2: Path,
) -> None:
    program = f"""
import asyncio
from podium.core.pool import WorkerProfile
from podium.workers import Endpoint, Http, connect
from podium.core.request import Request, user

async def main():
    http = Http()
    profile = WorkerProfile(name="ada", provider="llamacpp", model={MODEL!r})
    worker = connect(profile, Endpoint(options={LOADED!r}), http)
    await worker.reply(Request((user("Hello"),), max_tokens=2))
    try:
        await worker.reply(Request((user("Hello"),), grammar="root ::= ["))
    except Exception as error:
        print(type(error).__name__)
    await http.close()
    return worker

left_open = asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout == "RequestRefused\n"
    assert [line for line in ended.stderr.splitlines() if not line.startswith("Executing")] == []
    assert ended.returncode == 0
