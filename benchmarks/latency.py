"""Latency of conducted answers beside direct calls, over models of realistic speed.

A model's first token comes after a log-normal time (median 0.6 s), then 60 tokens a second; a
planner writes at 40, 80 and 120. One call is also made through the gateways of Podium, LiteLLM and
Portkey. The plans in `plans.jsonl` are three-step plans that the embedded
conductor wrote for études; the JSON form and the paper's three lists hold the same workflows, the
JSON form after a reasoning of the prompt's examples. But for the gateways, workers sleep in this
process, so that the figures hold no network.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.environment import OnProgress
from benchmarks.load_client import Call, connect
from benchmarks.processes import UPSTREAM, upstream_process
from benchmarks.report import AT_MOST, Figures, machine
from benchmarks.server import (
    litellm_model,
    litellm_process,
    podium_server,
    portkey_call,
    portkey_process,
)
from benchmarks.upstream import MEDIAN_FIRST_TOKEN, MODEL, SPREAD, TOKENS_A_SECOND, first_token
from podium.conductors import ModelConductor, conductor_for_tier
from podium.conductors.plan import PlanStream, parse, workflow_document, write
from podium.conductors.prompt import examples
from podium.core.conductor import Conductor
from podium.core.events import Event, StepDelta
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Reply, Request, Usage, user
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Runner

PLANS: Final = Path(__file__).with_name("plans.jsonl")
POOL: Final = Pool(tuple(WorkerProfile(name=f"model-{index}") for index in range(9)))
PLANNER_SPEEDS: Final = (40.0, 80.0, 120.0)
CHARACTERS_A_TOKEN: Final = 4
REPLY_TOKENS: Final = 90
AT_ONCE: Final = 200
CALLS_AT_ONCE: Final = 16
EASY: Final = "What is the capital of France?"
PIECE: Final = 3
"""Tokens of one piece of a stream."""


class PacedWorker(Worker):
    """Streams a text at a model's speed; its first token comes after a log-normal time."""

    def __init__(self, name: str, speed: float, script: Callable[[Request], str]) -> None:
        self.profile = WorkerProfile(name=name)
        self._speed = speed
        self._script = script

    async def reply(self, request: Request) -> Reply:
        text = self._script(request)
        await asyncio.sleep(first_token(request.text) + tokens_of(text) / self._speed)
        return Reply(text, usage=Usage(10, tokens_of(text)))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        text, step = self._script(request), PIECE * CHARACTERS_A_TOKEN
        began = perf_counter() + first_token(request.text)
        for start in range(0, len(text), step):
            due = began + start / CHARACTERS_A_TOKEN / self._speed
            await asyncio.sleep(max(0.0, due - perf_counter()))
            yield Delta(text[start : start + step])
        yield Reply(text, usage=Usage(10, tokens_of(text)))


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text."""
    return math.ceil(len(text) / CHARACTERS_A_TOKEN)


@cache
def trained_plans() -> tuple[str, ...]:
    return tuple(json.loads(line) for line in PLANS.read_text("utf-8").splitlines())


@cache
def plans_by_form() -> dict[str, tuple[str, ...]]:
    """Return the same plans in three forms."""
    workflows = [parse(text, POOL).workflow for text in trained_plans()]
    thoughts = [example.reasoning for example in examples()]
    documents = (
        {"reasoning": thoughts[index % len(thoughts)], **workflow_document(workflow, POOL)}
        for index, workflow in enumerate(workflows)
        if workflow is not None
    )
    lists = tuple(write(workflow, POOL) for workflow in workflows if workflow is not None)
    return {
        "trained": trained_plans(),
        "json": tuple(json.dumps(document, ensure_ascii=False) for document in documents),
        "lists": lists,
    }


def first_call_share(text: str) -> float:
    """Return the share of the plan's text that is written when its first step can begin."""
    stream = PlanStream(POOL)
    for position, character in enumerate(text):
        if stream.feed(character):
            return (position + 1) / len(text)
    return 1.0


class Timed(NamedTuple):
    """Seconds of one answer: to the first token, and to the end."""

    first: float
    end: float


async def timed(runner: Runner, question: str) -> Timed:
    """Ask, and time the answer's first token and its end."""
    began, first = perf_counter(), list[float]()

    def watch(event: Event) -> None:
        if isinstance(event, StepDelta) and not first:
            first.append(perf_counter() - began)

    run = await runner.run(question, emit=watch, stream=True)
    assert run.status == "answered", run.error
    return Timed(first[0], perf_counter() - began)


async def timed_all(runner: Runner, questions: Sequence[str]) -> list[Timed]:
    """Ask all questions, `AT_ONCE` at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(question: str) -> Timed:
        async with slots:
            return await timed(runner, question)

    return list(await asyncio.gather(*map(ask, questions)))


def workers() -> list[Worker]:
    """Return the pool's workers, each with replies of one length."""
    text = "word " * (REPLY_TOKENS * CHARACTERS_A_TOKEN // 5)
    return [PacedWorker(name, TOKENS_A_SECOND, lambda _: text) for name in POOL.names]


def conductor(plans: dict[str, str], speed: float, *, overlap: bool, speculate: bool) -> Conductor:
    """Return a conductor that writes the given plan for each question."""

    def plan_for(request: Request) -> str:
        return next(text for mark, text in plans.items() if mark in request.text)

    planner = PacedWorker("planner", speed, plan_for)
    return ModelConductor(
        planner, structured="lists", overlap=overlap, speculate=speculate, fallback=POOL.names[0]
    )


BARS: Final = {
    "first_call_share": (AT_MOST, 0.35),
    "end_ratio": (AT_MOST, 0.8),
    "easy_ttft_ratio": (AT_MOST, 1.15),
    "langgraph_end_ratio": (AT_MOST, 1.0),
}


async def measure_latency(
    count: int,
    on_progress: OnProgress,
    *,
    langgraph: Path | None = None,
    litellm: Path | None = None,
    portkey: Path | None = None,
) -> Figures:
    """Measure `count` plans of each form at each speed of a planner."""
    forms = {form: texts[:count] for form, texts in plans_by_form().items()}
    shares = {form: [first_call_share(text) for text in texts] for form, texts in forms.items()}
    ends: dict[str, dict[str, float]] = {}
    ratios: list[float] = []
    peer: list[float] = []
    for speed in PLANNER_SPEEDS:
        on_progress(f"{3 * count} plans at {speed:g} tokens/s …")
        for form, texts in forms.items():
            plans = {f"question {form} {index:03d}.": text for index, text in enumerate(texts)}
            found = {}
            for name, overlap in (("on", False), ("overlap", True)):
                led = conductor(plans, speed, overlap=overlap, speculate=False)
                found[name] = await timed_all(Runner(led, workers(), pool=POOL), list(plans))
            row = {name: median(one.end for one in times) for name, times in found.items()}
            row["ratio"] = row["overlap"] / row["on"]
            ends[f"{form} at {speed:g}/s"] = {key: round(value, 3) for key, value in row.items()}
            if form != "lists":
                ratios.append(row["ratio"])
            if langgraph is not None and form == "trained":
                seconds = await asyncio.to_thread(langgraph_ends, langgraph, texts, speed)
                peer.append(row["overlap"] / median(seconds))
    on_progress("easy questions …")
    easy = await measure_easy(count)
    on_progress("one call through gateways …")
    one_call = await measure_gateways(count, litellm, portkey)
    values = {
        **machine(),
        "plans": count,
        "median_end_seconds": ends,
        "first_call_share_by_form": {k: round(median(v), 3) for k, v in shares.items()},
        "easy_ttft_seconds": {name: round(value, 3) for name, value in easy.items()},
        "one_call_seconds": one_call,
        "first_call_share": round(median([*shares["trained"], *shares["json"]]), 3),
        "end_ratio": round(max(ratios), 3),
        "easy_ttft_ratio": round(easy["podium, speculation"] / easy["direct"], 3),
        "langgraph_end_ratio": round(max(peer), 3) if peer else None,
    }
    return Figures(values, BARS)


async def measure_easy(count: int) -> dict[str, float]:
    """Return the median seconds to the first token of easy questions, by way of asking.

    `podium` decides by the question's words; `ultra` has a plan written for every question, here
    one step for the best worker.
    """
    questions = [f"{EASY} ({index:03d})" for index in range(count)]
    plan = write(Workflow((Step(POOL.names[0], EASY),)), POOL, order="step-by-step")
    led = {
        speculate: conductor({EASY: plan}, 80.0, overlap=True, speculate=speculate)
        for speculate in (False, True)
    }
    ways: dict[str, Runner] = {
        "podium, speculation": Runner(
            conductor_for_tier("podium", led[True]), workers(), pool=POOL
        ),
        "ultra": Runner(led[False], workers(), pool=POOL),
        "ultra, speculation": Runner(led[True], workers(), pool=POOL),
    }
    found = {"direct": await direct_first_tokens(questions)}
    for name, runner in ways.items():
        found[name] = [one.first for one in await timed_all(runner, questions)]
    return {name: median(seconds) for name, seconds in found.items()}


async def direct_first_tokens(questions: Sequence[str]) -> list[float]:
    """Return the seconds to the first token of a worker that is called without Podium."""
    worker, slots = workers()[0], asyncio.Semaphore(AT_ONCE)

    async def ask(question: str) -> float:
        async with slots:
            began = perf_counter()
            async for _ in worker.stream(Request((user(question),))):
                return perf_counter() - began
            raise AssertionError("a stream has a first piece")

    return list(await asyncio.gather(*map(ask, questions)))


def langgraph_ends(python: Path, plans: Sequence[str], speed: float) -> list[float]:
    """Return the seconds of LangGraph's plan-and-execute with the same plans and latencies."""
    chance = random.Random(speed)  # noqa: S311 - repeatable, not secret

    def call(tokens: float, pace: float) -> float:
        return MEDIAN_FIRST_TOKEN * math.exp(SPREAD * chance.gauss(0, 1)) + tokens / pace

    jobs = [
        (call(tokens_of(text), speed), [call(REPLY_TOKENS, TOKENS_A_SECOND) for _ in range(3)])
        for text in plans
    ]
    script = Path(__file__).with_name("peers") / "langgraph_plan.py"
    ended = subprocess.run(  # noqa: S603 - the caller names the interpreter
        [str(python), str(script)],
        input=json.dumps({"jobs": jobs, "at_once": AT_ONCE}),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: list[float] = json.loads(ended.stdout)
    return seconds


async def measure_gateways(
    count: int, litellm: Path | None, portkey: Path | None
) -> dict[str, dict[str, float]]:
    """Return the median seconds of one call, direct and through gateways.

    `added` is the median of what the same question takes longer to its first token. Portkey's
    gateway answers streams from such an upstream with 500, so it has its whole answer alone.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        port = await stack.enter_async_context(upstream_process(UPSTREAM, "paced"))
        podium = await stack.enter_async_context(podium_server(port, directory / "podium"))
        calls = {"direct": Call(port, MODEL), "podium": Call(podium.port, MODEL)}
        if litellm is not None:
            models = {"model_list": [litellm_model(MODEL, port)]}
            process = litellm_process(litellm, models, directory / "litellm")
            calls["litellm"] = Call((await stack.enter_async_context(process)).port, MODEL)
        if portkey is not None:
            process = portkey_process(portkey, directory / "portkey")
            started = await stack.enter_async_context(process)
            calls["portkey"] = portkey_call(started.port, port)
        whole = {name: await called(call, count, stream=False) for name, call in calls.items()}
        calls.pop("portkey", None)
        first = {name: await called(call, count, stream=True) for name, call in calls.items()}
    return {
        "whole": {name: round(median(seconds), 3) for name, seconds in whole.items()},
        "first token": {name: round(median(seconds), 3) for name, seconds in first.items()},
        "added": {
            name: round(median(map(float.__sub__, seconds, first["direct"])), 4)
            for name, seconds in first.items()
        },
    }


async def called(call: Call, count: int, *, stream: bool) -> list[float]:
    """Return the seconds of `count` questions to the first token or the whole answer."""
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def ask(index: int) -> float:
        request = replace(call, question=f"{EASY} ({index:03d})").request(stream=stream)
        async with slots, connect(call.port) as connection:
            if stream:
                return await connection.first_token(request)
            began = perf_counter()
            await connection.whole(request)
            return perf_counter() - began

    await ask(0)  # finds cold paths
    return list(await asyncio.gather(*map(ask, range(count))))
