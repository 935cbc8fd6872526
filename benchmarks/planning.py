"""Measure how soon a local model decides who answers, and how soon its own answers begin."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import aclosing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.report import AT_LEAST, AT_MOST, Figures, machine
from podium import AsyncPodium
from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.config.sources import DEFAULT_POOL
from podium.core.conductor import PlanningContext
from podium.core.events import StepDelta
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Request, assistant, user
from podium.core.worker import Worker
from podium.workers.local.llama_server import ModelServer, ModelSettings, shared_model

POOL: Final = Pool(
    (
        WorkerProfile(name="qwen2.5-coder", description="answers questions, writes programs"),
        WorkerProfile(name="python", description="runs the program that an earlier step wrote"),
    )
)
QUESTIONS: Final = (
    "What is the capital of Japan?",
    "How many days are there from 3 March to 9 May?",
    "Translate good morning to French.",
    "Write a palindrome checker in Python.",
    "What is 17 times 23?",
    "Name three rivers in Germany.",
)
THRESHOLDS: Final = {
    "prompt_tokens": (AT_MOST, 300),
    "cached_share": (AT_LEAST, 0.8),
    "decision_ms": (AT_MOST, 150),
    "first_token_seconds": (AT_MOST, 4),
    "first_token_ratio": (AT_MOST, 1.5),
}


class Decision(NamedTuple):
    """The milliseconds of one plan, those of reading the prompt, and the prompt's tokens."""

    ms: float
    prefill_ms: float
    tokens: int
    cached_tokens: int


async def measure_planning(model: Path) -> Figures:
    """Ask for plans up to the end of their list of workers: one worker, or a workflow.

    `prompt_tokens` are those beyond the question, whose words are counted as a token each; figures
    are medians over the questions after the first. `decision_ms` leaves out the time in which
    llama.cpp read what was not cached. The first tokens are those of the default pool over that
    model, on the tier `podium` and from the model called directly.
    """
    shared = shared_model(ModelSettings(path=str(model)))
    shared.acquire()
    load = os.getloadavg()[0]
    try:
        server = await shared.serving()
        decisions = [await asyncio.to_thread(_decide, server, q) for q in QUESTIONS]
    finally:
        await shared.release()
    cold, *warm = decisions
    conducted, direct = await _first_tokens(model)
    beyond = (d.tokens - len(q.split()) for d, q in zip(decisions, QUESTIONS, strict=True))
    document = {
        "prompt_tokens": max(beyond),
        "cached_share": round(median(d.cached_tokens / d.tokens for d in warm), 3),
        "decision_ms": round(median(d.ms - d.prefill_ms for d in warm), 1),
        "prefill_ms": round(median(d.prefill_ms for d in warm), 1),
        "cold_ms": round(cold.ms, 1),
        "first_token_seconds": round(conducted, 3),
        "first_token_ratio": round(conducted / direct, 3),
        "model": model.name,
        "load_average": round(load, 2),
        **machine(),
    }
    return Figures(document, THRESHOLDS)


def _decide(server: ModelServer, question: str) -> Decision:
    context = PlanningContext(question=question, pool=POOL)
    begun = plan.forced_opening("lists", may_accept=False)
    messages = (*Prompt("compact", "grammar").messages(context), assistant(begun))
    body: dict[str, Any] = {
        "messages": [{"role": turn.role, "content": turn.text} for turn in messages],
        "grammar": plan.grammar(POOL, context.max_steps, subtask=question, begun=begun),
        "temperature": 0,
        "max_tokens": 32,
        "stop": ["]"],
    }
    headers = {"Authorization": f"Bearer {server.key}"}
    url = f"{server.address}/v1/chat/completions"
    started = perf_counter()
    response = httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)
    document = response.raise_for_status().json()
    ms, timings = (perf_counter() - started) * 1000, document["timings"]
    tokens = document["usage"]["prompt_tokens"]
    return Decision(ms, timings["prompt_ms"], tokens, timings["cache_n"])


async def _first_tokens(model: Path) -> tuple[float, float]:
    """Return the median seconds to the first token: on `podium`, and of direct calls.

    The wordings differ, so that neither reads from the other's prompt cache.
    """
    conducted, direct = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        pool = Path(directory) / "pool.toml"
        text = DEFAULT_POOL.read_text("utf-8")
        pool.write_text(text.replace('"qwen2.5-coder-1.5b-instruct"', json.dumps(str(model))))
        async with AsyncPodium(pool=pool, store=Path(directory) / "runs.db") as podium:
            worker = (await podium.open()).assembly.workers[0]
            await _conducted_first_token(podium, "Are you ready?")
            for index, question in enumerate(QUESTIONS):
                wordings = (f"Tell me: {question}", question)
                ours, theirs = wordings[:: 1 if index % 2 else -1]
                conducted.append(await _conducted_first_token(podium, ours))
                direct.append(await _direct_first_token(worker, theirs))
    return median(conducted), median(direct)


async def _conducted_first_token(podium: AsyncPodium, question: str) -> float:
    started = perf_counter()
    async with aclosing(podium.stream(question, tier="podium")) as events:
        async for event in events:
            if isinstance(event, StepDelta):
                return perf_counter() - started
    raise AssertionError(f"no answer to {question!r}")


async def _direct_first_token(worker: Worker, question: str) -> float:
    started = perf_counter()
    async with aclosing(worker.stream(Request((user(question),)))) as pieces:
        await anext(pieces)
        return perf_counter() - started
