"""Plan texts made odd, read by the parser, and held to what it promises.

Whatever the text:

- `parse` raises nothing but `MalformedPlan`, whose words are few and can be written down;
- a workflow that it returns names workers of the pool, is no longer than allowed, and is the same
  workflow when written and read again;
- it takes no more than so much time a character, and twice the text no more than twice the time.

Texts that go a way through the parser that none went before join the corpus, which is what makes
the next ones (`coverage`). How a text ended is a cheap hint of that and is looked at each
time; a share of all texts is traced besides.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import podium.conductors.plan
from benchmarks.fuzz.coverage import Coverage
from benchmarks.fuzz.mutation import mutated
from benchmarks.fuzz.row import MOST_FINDINGS, Finding, FuzzRow
from benchmarks.fuzz.seeds import POOL, SEEDS, UNITS
from podium.conductors.plan import parse, write
from podium.core.errors import MalformedPlan
from podium.core.workflow import DEFAULT_MAX_STEPS, Workflow

TRACED_SHARE: Final = 1 / 50
WHERES: Final = frozenset({"model_id", "subtasks", "access_list", "steps", "plan"})
LONGEST_REASON: Final = 400

SECONDS_ALLOWED: Final = 0.002
SECONDS_A_CHARACTER: Final = 5e-6
"""Some thirty times what the slowest known texts take, on a slow machine."""

GROWTH_SIZES: Final = (4_000, 16_000, 64_000)
"""From small to large, so that a reader gone quadratic is found out and does not hang."""

GROWTH_ALLOWED: Final = 2.83
"""What twice the text may cost: between linear, which is 2, and quadratic, which is 4."""

TOO_SHORT_TO_JUDGE: Final = 0.001
_DETAIL: Final = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Reading:
    """How one text is read: the options of `parse`."""

    strict: bool
    may_accept: bool

    def __call__(self, text: str) -> str:
        """Read the text and check what came of it; in a word, how it ended."""
        try:
            parsed = parse(text, POOL, strict=self.strict, may_accept=self.may_accept)
        except MalformedPlan as problem:
            _check_problem(problem)
            return f"{problem.where}:{_DETAIL.sub('', problem.reason)[:60]}"
        if parsed.workflow is None:
            if not self.may_accept:
                raise AssertionError("a plan without steps was accepted") from None
            return "accepted"
        _check_workflow(parsed.workflow)
        return f"{len(parsed.workflow)} steps, {parsed.workflow.shape}, {len(parsed.warnings)}"


READINGS: Final = tuple(
    Reading(strict, may_accept) for strict in (False, True) for may_accept in (False, True)
)


def _check_problem(problem: MalformedPlan) -> None:
    if problem.where not in WHERES:
        raise AssertionError(f"the error is in {problem.where!r}, which is no part of a plan")
    if not 0 < len(problem.reason) < LONGEST_REASON:
        raise AssertionError(f"the error's reason has {len(problem.reason)} characters")
    str(problem).encode()


def _check_workflow(workflow: Workflow) -> None:
    workflow.check(POOL.names, DEFAULT_MAX_STEPS)
    for step in workflow.steps:
        step.subtask.encode()
    again = parse(write(workflow, POOL), POOL, may_accept=True).workflow
    if again != workflow:
        raise AssertionError("written and read again, the workflow is another")


@dataclass(slots=True)
class Campaign:
    """One process's share of a campaign."""

    chance: Random
    corpus: list[str] = field(default_factory=lambda: list(SEEDS))
    endings: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    coverage: Coverage = field(
        default_factory=lambda: Coverage(str(Path(podium.conductors.plan.__file__).parent))
    )
    texts: int = 0

    def run(self, count: int, ends_at: float) -> None:
        """Read so many texts, or as many as there is time for."""
        for text in SEEDS:
            self._read(text, READINGS[0], traced=True)
        chance, corpus = self.chance, self.corpus
        while self.texts < count and len(self.findings) < MOST_FINDINGS:
            if not self.texts % 64 and time.perf_counter() > ends_at:
                break
            # What joined last has been tried least.
            place = int(chance.random() ** 0.5 * len(corpus))
            text = mutated(corpus[place], corpus[int(chance.random() * len(corpus))], chance)
            reading = READINGS[int(chance.random() * len(READINGS))]
            self._read(text, reading, traced=chance.random() < TRACED_SHARE)

    def _read(self, text: str, reading: Reading, *, traced: bool) -> None:
        self.texts += 1
        began = time.perf_counter()
        try:
            ending = reading(text)
        except Exception as error:  # noqa: BLE001 - what must not be raised is what is looked for
            self.findings.append(Finding(f"{reading} raised {error!r}", repr(text)))
            return
        if time.perf_counter() - began > _allowed(text):
            self._check_time(text, reading)
        if ending not in self.endings or traced:
            self.endings.add(ending)
            if self.coverage.is_new(lambda: reading(text)):
                self.corpus.append(text)

    def _check_time(self, text: str, reading: Reading) -> None:
        """Whether the time was the parser's: another program may have had the processor."""
        seconds = _cpu_seconds(text, reading)
        if seconds > _allowed(text):
            broken = f"{len(text)} characters took {seconds * 1000:.1f} ms"
            self.findings.append(Finding(broken, repr(text)))

    def slowest_growth(self, families: int, ends_at: float) -> float:
        """The most that twice the text cost, over texts that repeat themselves."""
        slowest = 0.0
        units = [("", unit, "") for unit in UNITS] + [self._family() for _ in range(families)]
        for family in units:
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
        """A beginning, what is repeated after it, and an end, from wherever the corpus has it."""
        chance = self.chance
        text = chance.choice(self.corpus) or "["
        start, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        unit = text[start:end] or text
        if chance.random() < 0.3:
            unit = mutated(unit, text, chance) or "["
        return (text[:start], unit, text[end:]) if chance.random() < 0.5 else ("", unit, "")


def campaign(count: int, seconds: float, seed: int) -> FuzzRow:
    """One process's share."""
    began = time.perf_counter()
    ends_at = began + seconds
    one = Campaign(Random(seed))  # noqa: S311 - chance that can be repeated, and no secret
    one.run(count, began + seconds * 0.8)
    slowest = one.slowest_growth(10 + count // 2000, ends_at)
    return FuzzRow(
        name="plans",
        inputs=one.texts,
        seconds=time.perf_counter() - began,
        findings=tuple(one.findings),
        corpus=len(one.corpus),
        covered=len(one.coverage),
        slowest_growth=slowest,
    )


def _allowed(text: str) -> float:
    return SECONDS_ALLOWED + len(text) * SECONDS_A_CHARACTER


def _cpu_seconds(text: str, reading: Reading, times: int = 3) -> float:
    """The CPU time of the quickest of some readings: what other programs do does not count."""
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        reading(text)
        best = min(best, time.thread_time() - began)
    return best


def _growth(family: tuple[str, str, str], times: int = 1) -> float:
    """What twice the text costs, from what four times the text does; 2 where it is too little to
    be judged. Only what looks slow is measured with care."""
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
