"""Fuzz the plan parser with mutated plans.

Whatever the text: `parse` raises only `MalformedPlan`; a returned workflow is valid for the pool
and survives writing and parsing again; time is linear in the text. Texts with a new outcome join
the corpus. `plans.json` holds the texts and tokens that mutations begin from.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain
from random import Random
from typing import Any, Final

from benchmarks.fuzz import MAX_FINDINGS, Finding, FuzzRow
from podium.conductors.plan import parse, write, write_acceptance
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import DEFAULT_MAX_STEPS, Step, Workflow

NAMES: Final = ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b")
POOL: Final = Pool(tuple(WorkerProfile(name=name) for name in NAMES))

_WORKFLOWS: Final = (
    Workflow((Step("gpt-5", "Answer."),)),
    Workflow((Step("gpt-5", "Plan the algorithm"), Step("gemini-2.5-pro", "Write it", "all"))),
    Workflow(
        (
            Step("gpt-5", 'Say "yes" or \\ no'),
            Step("qwen3-32b", "Two\nlines, [brackets] and model_id = [1]"),
            Step("claude-sonnet-4", "Don’t guess", (0,)),
            Step("gpt-5", "Join.", (0, 1, 2)),
        )
    ),
)
_TEXTS: Final[dict[str, Any]] = json.loads(
    resources.files(__package__).joinpath("plans.json").read_text("utf-8")
)
SEEDS: Final = (
    *(write(workflow, POOL) for workflow in _WORKFLOWS),
    *(write(workflow, POOL, order="step-by-step") for workflow in _WORKFLOWS),
    write_acceptance(),
    write_acceptance("step-by-step"),
    *_TEXTS["quirks"],
)
TOKENS: Final = (*_TEXTS["tokens"], "9" * 5000, "-" + "9" * 400)
QUOTES: Final = ('"', "'", "“", "”", "‘", '"""', "`", '\\"')

LONGEST: Final = 3000
"""Longer texts take a new path rarely; growth is measured separately."""


def mutated(text: str, other: str, chance: Random) -> str:
    """Replace one to four spans of the text: by nothing, tokens, the other text, or by themselves
    repeated or nested."""
    for _ in range(1 + int(chance.random() ** 2 * 4)):
        start = int(chance.random() * (len(text) + 1))
        end = min(len(text), start + int(chance.random() ** 3 * 80))
        span = text[start:end]
        match int(chance.random() * 12):
            case 0:
                piece = ""
            case 1:
                piece = span * chance.choice((2, 3, 8, 40))
            case 2:
                (opening, closing), depth = chance.choice(_TEXTS["brackets"]), chance.choice((1, 7))
                piece = opening * depth + span + closing * chance.choice((depth, depth, 0))
            case 3:
                piece, end = other[int(chance.random() * (len(other) + 1)) :], len(text)
            case 4:
                piece = other[start:end]
            case 5:
                text = text.replace(chance.choice(QUOTES), chance.choice(QUOTES))
                continue
            case 6 | 7:
                piece, end = chr(chance.randrange(0x250)), start + 1
            case _:
                piece = chance.choice(TOKENS) + (span if chance.random() < 0.6 else "")
        text = text[:start] + piece + text[end:]
    return text[:LONGEST]


PLAN_PARTS: Final = frozenset({"model_id", "subtasks", "access_list", "steps", "plan"})
LONGEST_REASON: Final = 400

SECONDS_ALLOWED: Final = 0.002
SECONDS_A_CHARACTER: Final = 5e-6
"""Thirty times the slowest known texts, on a slow machine."""

GROWTH_SIZES: Final = (4_000, 16_000, 64_000)
"""Ascending, so that quadratic time is found before it hangs."""

GROWTH_ALLOWED: Final = 2.83
"""Cost of doubling the text: between linear (2) and quadratic (4)."""

TOO_SHORT_TO_JUDGE: Final = 0.001
_DETAIL: Final = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Reading:
    """The options of `parse` for one text."""

    strict: bool
    may_accept: bool

    def __call__(self, text: str) -> str:
        """Parse the text, check the result, and return how it ended."""
        try:
            parsed = parse(text, POOL, strict=self.strict, may_accept=self.may_accept)
        except MalformedPlan as problem:
            where, reason = problem.where, problem.reason
            assert where in PLAN_PARTS, f"{where!r} is no part of a plan"
            assert 0 < len(reason) < LONGEST_REASON, "the reason is empty or too long"
            str(problem).encode()
            return f"{where}:{_DETAIL.sub('', reason)[:60]}"
        workflow = parsed.workflow
        if workflow is None:
            assert self.may_accept, "a plan without steps was accepted"
            return "accepted"
        workflow.check(POOL.names, DEFAULT_MAX_STEPS)
        for step in workflow.steps:
            step.subtask.encode()
        again = parse(write(workflow, POOL), POOL, may_accept=True).workflow
        assert again == workflow, "written and read again, the workflow is another"
        return f"{len(workflow)} steps, {workflow.shape}, {len(parsed.warnings)}"


READINGS: Final = tuple(
    Reading(strict, may_accept) for strict in (False, True) for may_accept in (False, True)
)


@dataclass(slots=True)
class PlanCampaign:
    """One process's share of a campaign."""

    chance: Random
    corpus: list[str] = field(default_factory=lambda: list(SEEDS))
    endings: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    texts: int = 0

    def run(self, count: int, ends_at: float) -> None:
        """Parse that many texts, or as many as time allows."""
        for text in SEEDS:
            self._read(text, READINGS[0])
        chance, corpus = self.chance, self.corpus
        while self.texts < count and len(self.findings) < MAX_FINDINGS:
            if not self.texts % 64 and time.perf_counter() > ends_at:
                break
            # What joined last has been tried least.
            position = int(chance.random() ** 0.5 * len(corpus))
            text = mutated(corpus[position], corpus[int(chance.random() * len(corpus))], chance)
            reading = READINGS[int(chance.random() * len(READINGS))]
            self._read(text, reading)

    def _read(self, text: str, reading: Reading) -> None:
        self.texts += 1
        allowed = SECONDS_ALLOWED + len(text) * SECONDS_A_CHARACTER
        began = time.perf_counter()
        try:
            ending = reading(text)
        except Exception as error:  # noqa: BLE001 - what must not be raised is what is looked for
            self.findings.append(Finding(f"{reading} raised {error!r}", repr(text)))
            return
        if time.perf_counter() - began > allowed:  # or did another program have the processor?
            seconds = _cpu_seconds(text, reading)
            if seconds > allowed:
                broken = f"{len(text)} characters took {seconds * 1000:.1f} ms"
                self.findings.append(Finding(broken, repr(text)))
        if ending not in self.endings:
            self.endings.add(ending)
            self.corpus.append(text)

    def slowest_growth(self, families: int, ends_at: float) -> float:
        """Return the largest cost of doubling a repetitive text."""
        slowest = 0.0
        fixed = (("", unit, "") for unit in _TEXTS["growing"])
        for family in chain(fixed, (self._family() for _ in range(families))):
            if time.perf_counter() > ends_at:
                break
            growth = _growth(family)
            if growth > GROWTH_ALLOWED:
                growth = _growth(family, times=5)
            slowest = max(slowest, growth)
            if growth > GROWTH_ALLOWED:
                broken = f"twice the text took {growth:.1f} times as long"
                self.findings.append(Finding(broken, repr(family)))
        return slowest

    def _family(self) -> tuple[str, str, str]:
        """Return a beginning, a repeated unit and an end from the corpus."""
        chance = self.chance
        text = chance.choice(self.corpus) or "["
        start, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        unit = text[start:end] or text
        if chance.random() < 0.3:
            unit = mutated(unit, text, chance) or "["
        return (text[:start], unit, text[end:]) if chance.random() < 0.5 else ("", unit, "")


def campaign(count: int, seconds: float, seed: int) -> FuzzRow:
    """Run one process's share."""
    began = time.perf_counter()
    one = PlanCampaign(Random(seed))  # noqa: S311 - chance that can be repeated, and no secret
    one.run(count, began + seconds * 0.8)
    slowest = one.slowest_growth(10 + count // 2000, began + seconds)
    return FuzzRow(
        inputs=one.texts,
        seconds=time.perf_counter() - began,
        findings=tuple(one.findings),
        corpus=len(one.corpus),
        slowest_growth=slowest,
    )


def _cpu_seconds(text: str, reading: Reading, times: int = 3) -> float:
    """Return the CPU time of the fastest of several readings."""
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        reading(text)
        best = min(best, time.thread_time() - began)
    return best


def _growth(family: tuple[str, str, str], times: int = 1) -> float:
    """Return the cost of doubling the text; 2 if it is too fast to measure."""
    growth, before = 2.0, 0.0
    beginning, unit, end = family
    for size in GROWTH_SIZES:
        text = beginning + unit * (size // len(unit) + 1) + end
        taken = _cpu_seconds(text, READINGS[0], times)
        if before > TOO_SHORT_TO_JUDGE / 4 and taken > TOO_SHORT_TO_JUDGE:
            growth = max(growth, (taken / before) ** 0.5)
            if growth > GROWTH_ALLOWED:
                break
        before = taken
    return growth
