"""Latency of conducted answers beside direct calls, over models of realistic speed.

A model's first token comes after a log-normal time (median 0.6 s), then 60 tokens a second; a
planner writes at 40, 80 and 120. There workers sleep in this process, so the figures hold no
network. Then one call is made through the servers of Podium and of gateways, 1,000 streams are
opened at once, and the engine is measured by itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

from benchmarks.capacity.measure import LOADS, MAX_IN_FLIGHT, memory_in_flight
from benchmarks.engine import THRESHOLDS as ENGINE_THRESHOLDS
from benchmarks.engine import measure_engine, run_langgraph
from benchmarks.environment import LANGGRAPH, OnProgress, prepare
from benchmarks.load_client import Call, connect
from benchmarks.processes import UPSTREAM, upstream_process
from benchmarks.report import AT_MOST, Figures, machine
from benchmarks.server import (
    TIER,
    podium_server,
    start_gateways,
)
from benchmarks.upstream import MODEL, TOKENS_A_SECOND, first_token
from podium.conductors import ModelConductor, conductor_for_tier
from podium.conductors.plan import PlanStream, parse, write
from podium.core.events import Event, StepDelta
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Reply, Request, Usage, user
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Runner

PLANS: Final = Path(__file__).with_name("plans.jsonl")
PLANNER_SPEEDS: Final = (40.0, 80.0, 120.0)
CHARACTERS_A_TOKEN: Final = 4
REPLY_TOKENS: Final = 90
POOL: Final = Pool(tuple(WorkerProfile(name=f"model-{index}") for index in range(9)))
AT_ONCE: Final = 200
CALLS_AT_ONCE: Final = 16
STREAMS: Final = 1000
ENGINE_BLOCKS: Final = 300
EASY: Final = "What is the capital of France?"
PIECE: Final = 3
"""Tokens of one piece of a stream."""


class RecordedPlan(NamedTuple):
    """A plan as a conductor wrote it."""

    text: str
    workflow: Workflow

    @property
    def tokens(self) -> int:
        return math.ceil(len(self.text) / CHARACTERS_A_TOKEN)


def read_plans(count: int) -> dict[str, list[RecordedPlan]]:
    found: dict[str, list[RecordedPlan]] = defaultdict(list)
    for line in PLANS.read_text("utf-8").splitlines():
        document = json.loads(line)
        found[document["form"]].append(read_plan(document["plan"]))
    return {form: plans[:count] for form, plans in found.items()}


def read_plan(text: str) -> RecordedPlan:
    workflow = parse(text, POOL).workflow
    assert workflow is not None, f"expected a plan, got {text}"
    return RecordedPlan(text, workflow)


def first_call_share(plan: RecordedPlan) -> float:
    """Return the share of the plan's text that is written when its first step can begin."""
    stream = PlanStream(POOL)
    for position, character in enumerate(plan.text):
        if stream.feed(character):
            return (position + 1) / len(plan.text)
    return 1.0


class PacedWorker(Worker):
    """Streams a text at a model's speed; the first token comes after a log-normal time."""

    def __init__(self, name: str, speed: float, text: str, tokens: int) -> None:
        self.profile = WorkerProfile(name=name)
        self._speed = speed
        self._text = text
        self._tokens = tokens

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(first_token(request.text) + self._tokens / self._speed)
        return Reply(self._text, usage=Usage(10, self._tokens))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        text, tokens = self._text, self._tokens
        began = perf_counter() + first_token(request.text)
        for start in range(0, tokens, PIECE):
            await asyncio.sleep(max(0.0, began + start / self._speed - perf_counter()))
            end = min(start + PIECE, tokens)
            yield Delta(text[start * len(text) // tokens : end * len(text) // tokens])
        await asyncio.sleep(max(0.0, began + tokens / self._speed - perf_counter()))
        yield Reply(text, usage=Usage(10, tokens))


def runner_for(
    plan: RecordedPlan, speed: float, *, overlap: bool = True, speculate: bool = False
) -> Runner:
    """Return a runner whose conductor writes that plan."""
    led = ModelConductor(
        PacedWorker("planner", speed, plan.text, plan.tokens),
        plan_format="json",
        overlap=overlap,
        speculate=speculate,
        fallback=POOL.names[0],
    )
    reply = "word" * REPLY_TOKENS
    workers = [PacedWorker(name, TOKENS_A_SECOND, reply, REPLY_TOKENS) for name in POOL.names]
    return Runner(led, workers, pool=POOL)


class Timed(NamedTuple):
    """Seconds of one answer: to the first token, and to the end."""

    first: float
    end: float


async def ask(runner: Runner, question: str) -> Timed:
    began, first = perf_counter(), list[float]()

    def watch(event: Event) -> None:
        if isinstance(event, StepDelta) and not first:
            first.append(perf_counter() - began)

    run = await runner.run(question, emit=watch, stream=True)
    assert run.status == "answered", run.error
    return Timed(first[0], perf_counter() - began)


async def ask_directly(runner: Runner, question: str) -> Timed:
    """Ask the runner's first worker without Podium."""
    worker, began, first = next(iter(runner.workers.values())), perf_counter(), list[float]()
    async for _ in worker.stream(Request((user(question),))):
        first.append(perf_counter() - began)
    return Timed(first[0], perf_counter() - began)


async def medians(answers: Iterable[Awaitable[Timed]]) -> Timed:
    """Return the median of the answers, `AT_ONCE` at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def wait_for(answer: Awaitable[Timed]) -> Timed:
        async with slots:
            return await answer

    found = await asyncio.gather(*map(wait_for, answers))
    return Timed(*(median(values) for values in zip(*found, strict=True)))


async def measure_plans(plans: Sequence[RecordedPlan], speed: float) -> dict[str, Timed]:
    """Return the medians of direct calls and of conducted answers."""
    asked = [(plan, f"question {index:03d}.") for index, plan in enumerate(plans)]
    found = {"direct": await medians(ask_directly(runner_for(p, speed), q) for p, q in asked)}
    for name, overlap, speculate in (
        ("conducted", False, False),
        ("overlap", True, False),
        ("speculation", True, True),
    ):
        found[name] = await medians(
            ask(runner_for(plan, speed, overlap=overlap, speculate=speculate), question)
            for plan, question in asked
        )
    return found


async def measure_easy(count: int) -> dict[str, Timed]:
    """Return the medians of easy questions.

    `podium` decides by the question's words; `ultra` has a plan written for every question, here
    one step for the best worker.
    """
    text = write(Workflow((Step(POOL.names[0], EASY),)), POOL, layout="step-by-step")
    plan = read_plan(text)
    ultra, speculating = (runner_for(plan, 80.0, speculate=on) for on in (False, True))
    workers = list(ultra.workers.values())
    podium = Runner(conductor_for_tier("podium", speculating.conductor), workers, pool=POOL)
    ways = {"podium": podium, "ultra": ultra, "ultra, speculation": speculating}
    questions = [f"{EASY} ({index:03d})" for index in range(count)]
    found = {"direct": await medians(ask_directly(ultra, question) for question in questions)}
    for name, runner in ways.items():
        found[name] = await medians(ask(runner, question) for question in questions)
    return found


def langgraph_end(python: Path, plans: Sequence[RecordedPlan], speed: float) -> float:
    """Return the median seconds of LangGraph's plan-and-execute, with the same latencies."""
    reply_seconds = REPLY_TOKENS / TOKENS_A_SECOND
    jobs = [
        (
            first_token(f"plan {index}") + plan.tokens / speed,
            [first_token(f"step {index} {n}") + reply_seconds for n in range(len(plan.workflow))],
        )
        for index, plan in enumerate(plans)
    ]
    return median(run_langgraph(python, {"jobs": jobs, "at_once": AT_ONCE}))


async def measure_gateways(
    count: int, *, peers: bool, on_progress: OnProgress
) -> dict[str, dict[str, float]]:
    """Return the median seconds of one call, direct and through gateways.

    `added` is the median of what the same question takes longer to its first token. Portkey's
    gateway answers streams from such an upstream with 500, so it has its whole answer alone.
    `at once` opens `STREAMS` streams together; `podium-mini` makes a run of each.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        port = await stack.enter_async_context(upstream_process(UPSTREAM, "paced"))
        settings = f"[server]\nin_flight = {MAX_IN_FLIGHT}\n"
        server = podium_server(port, directory / "podium", settings)
        podium = await stack.enter_async_context(server)
        calls = {"direct": Call(port, MODEL), "podium": Call(podium.port, MODEL)}
        if peers:
            gateways = await start_gateways(stack, port, directory, on_progress)
            calls |= {name: gateway.call for name, gateway in gateways.items()}
        whole = {name: await call_often(call, count) for name, call in calls.items()}
        calls.pop("portkey", None)
        first = {name: await call_often(call, count, stream=True) for name, call in calls.items()}
        many = {
            name: await call_often(call, STREAMS, stream=True, at_once=STREAMS)
            for name, call in (("direct", calls["direct"]), (TIER, Call(podium.port, TIER)))
        }
    return {
        "whole": _medians(whole),
        "first token": _medians(first),
        "added": _medians(_added_seconds(first)),
        "at once": _medians(many),
        "at once, added": _medians(_added_seconds(many)),
    }


def _medians(found: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(median(seconds), 4) for name, seconds in found.items()}


def _added_seconds(found: dict[str, list[float]]) -> dict[str, list[float]]:
    return {
        name: list(map(float.__sub__, seconds, found["direct"]))
        for name, seconds in found.items()
        if name != "direct"
    }


async def call_often(
    call: Call, count: int, *, stream: bool = False, at_once: int = CALLS_AT_ONCE
) -> list[float]:
    """Return the seconds of `count` questions to the first token or the whole answer."""
    slots = asyncio.Semaphore(at_once)

    async def make(index: int) -> float:
        request = replace(call, question=f"{EASY} ({index:03d})").request(stream=stream)
        async with slots, connect(call.port) as connection:
            if stream:
                return await connection.first_token(request)
            began = perf_counter()
            await connection.whole(request)
            return perf_counter() - began

    await make(0)  # finds cold paths
    return list(await asyncio.gather(*map(make, range(count))))


THRESHOLDS: Final = {
    "first_call_share": (AT_MOST, 0.35),
    "end_ratio": (AT_MOST, 0.8),
    "easy_ttft_ratio": (AT_MOST, 1.15),
    "langgraph_end_ratio": (AT_MOST, 1.0),
    **ENGINE_THRESHOLDS,
}


async def measure_latency(count: int, *, peers: bool, on_progress: OnProgress) -> Figures:
    """Measure `count` plans of each form at each speed of a planner, easy questions, gateways and
    the engine.

    Of several forms and speeds, the worst figure counts.
    """
    plans = read_plans(count)
    langgraph = await prepare(LANGGRAPH, on_progress) if peers else None
    rows: dict[str, dict[str, Any]] = {}
    ratios, beside = [], []
    for form, texts in plans.items():
        for speed in PLANNER_SPEEDS:
            on_progress(f"{len(texts)} plans ({form}) at {speed:g} tokens/s …")
            found = await measure_plans(texts, speed)
            ratio = found["overlap"].end / found["conducted"].end
            ratios.append(ratio)
            row = {way: [round(value, 3) for value in timed] for way, timed in found.items()}
            if langgraph is not None:
                theirs = await asyncio.to_thread(langgraph_end, langgraph, texts, speed)
                beside.append(found["overlap"].end / theirs)
                row["langgraph"] = [round(theirs, 3)]
            rows[f"{form} at {speed:g}/s"] = {**row, "end ratio": round(ratio, 3)}
    on_progress("easy questions …")
    easy = await measure_easy(count)
    on_progress(f"{STREAMS:,} runs in flight …")
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        memory = await memory_in_flight(LOADS[1], STREAMS, Path(directory))
    on_progress("calls through gateways …")
    gateways = await measure_gateways(count, peers=peers, on_progress=on_progress)
    measuring = measure_engine(ENGINE_BLOCKS, peers=peers, on_progress=on_progress)
    engine = (await asyncio.to_thread(asyncio.run, measuring)).document  # on asyncio's own loop
    shares = {form: median(map(first_call_share, texts)) for form, texts in plans.items()}
    values = {
        **machine(),
        "plans": {form: len(texts) for form, texts in plans.items()},
        "seconds_first_and_end": rows,
        "easy_first_seconds": {way: round(timed.first, 3) for way, timed in easy.items()},
        "call_seconds": gateways,
        "run_kib": round(memory["per_run_bytes"] / 1024, 1),
        "engine_microseconds": engine["microseconds"],
        "first_call_share_by_form": {form: round(share, 3) for form, share in shares.items()},
        "first_call_share": round(max(shares.values()), 3),
        "end_ratio": round(max(ratios), 3),
        "easy_ttft_ratio": round(easy["podium"].first / easy["direct"].first, 3),
        "langgraph_end_ratio": round(max(beside), 3) if beside else None,
        **{name: engine[name] for name in ENGINE_THRESHOLDS},
    }
    return Figures(values, THRESHOLDS)
