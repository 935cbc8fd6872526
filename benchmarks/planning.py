"""Measure how soon a local model decides who answers, question after question."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from operator import ge, le
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, ClassVar, Final
from urllib.request import Request, urlopen

from benchmarks.report import Bar, Figures, machine
from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.pool import Pool, WorkerProfile
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFigures(Figures):
    """Tokens and milliseconds of warm plans, the median over the questions after the first."""

    bars: ClassVar = {
        "prompt_tokens": Bar("<=", 300, le),
        "cached_share": Bar(">=", 0.8, ge),
        "decision_ms": Bar("<=", 150, le),
    }
    model: str
    prompt_tokens: int
    cached_share: float
    decision_ms: float
    prefill_ms: float
    cold_ms: float
    load_average: float

    def document(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_share": round(self.cached_share, 3),
            "decision_ms": round(self.decision_ms, 1),
            "prefill_ms": round(self.prefill_ms, 1),
            "cold_ms": round(self.cold_ms, 1),
            "model": self.model,
            "load_average": round(self.load_average, 2),
            **machine(),
        }


async def measure_planning(model: Path) -> PlanningFigures:
    """Ask for plans up to the end of their list of workers: one worker, or a workflow.

    `prompt_tokens` are those beyond the question, whose words are counted as a token each.
    `decision_ms` leaves out the time in which llama.cpp read what was not cached.
    """
    shared = shared_model(ModelSettings(path=str(model)))
    shared.acquire()
    load = os.getloadavg()[0]
    try:
        server = await shared.serving()
        cold, *warm = [await asyncio.to_thread(_decide, server, q) for q in QUESTIONS]
    finally:
        await shared.release()
    return PlanningFigures(
        model=model.name,
        prompt_tokens=max(
            tokens - size
            for (_, tokens, _, _), size in zip(
                (cold, *warm), map(_question_tokens, QUESTIONS), strict=True
            )
        ),
        cached_share=median(cached / tokens for _, tokens, cached, _ in warm),
        decision_ms=median(seconds * 1000 - read for seconds, _, _, read in warm),
        prefill_ms=median(read for *_, read in warm),
        cold_ms=cold[0] * 1000,
        load_average=load,
    )


def _question_tokens(question: str) -> int:
    """Return at least how many tokens a question has: its words."""
    return len(question.split())


def _decide(server: ModelServer, question: str) -> tuple[float, int, int, float]:
    """Return the seconds, the tokens of the prompt, the cached ones, and ms of reading."""
    context = PlanningContext(question=question, pool=POOL)
    messages = Prompt("compact", "grammar").messages(context)
    body = {
        "messages": [{"role": turn.role, "content": turn.text} for turn in messages],
        "grammar": plan.grammar(POOL, context.max_steps, subtask=question),
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
    seconds, timings = perf_counter() - started, document["timings"]
    tokens = document["usage"]["prompt_tokens"]
    return seconds, tokens, timings["cache_n"], timings["prompt_ms"]
