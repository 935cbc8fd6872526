"""Measure how soon a local model decides who answers, question after question."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple
from urllib.request import Request, urlopen

from benchmarks.report import AT_LEAST, AT_MOST, Figures, machine
from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import assistant
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
BARS: Final = {
    "prompt_tokens": (AT_MOST, 300),
    "cached_share": (AT_LEAST, 0.8),
    "decision_ms": (AT_MOST, 150),
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
    llama.cpp read what was not cached.
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
    beyond = (d.tokens - len(q.split()) for d, q in zip(decisions, QUESTIONS, strict=True))
    document = {
        "prompt_tokens": max(beyond),
        "cached_share": round(median(d.cached_tokens / d.tokens for d in warm), 3),
        "decision_ms": round(median(d.ms - d.prefill_ms for d in warm), 1),
        "prefill_ms": round(median(d.prefill_ms for d in warm), 1),
        "cold_ms": round(cold.ms, 1),
        "model": model.name,
        "load_average": round(load, 2),
        **machine(),
    }
    return Figures(document, BARS)


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
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
    url = f"{server.address}/v1/chat/completions"
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - on loopback
    started = perf_counter()
    with urlopen(request, timeout=120) as response:  # noqa: S310 - on loopback
        document = json.load(response)
    ms, timings = (perf_counter() - started) * 1000, document["timings"]
    tokens = document["usage"]["prompt_tokens"]
    return Decision(ms, timings["prompt_ms"], tokens, timings["cache_n"])
