"""Fuzz the plan parser with mutated plans, guided by coverage.

Whatever the text: `parse` raises only `MalformedPlan`; a returned workflow is valid for the pool
and survives writing and parsing again; time is linear in the text. Texts that take a new path join
the corpus.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Final

import podium.conductors.plan
from benchmarks.fuzz.report import MOST_FINDINGS, Coverage, Finding, FuzzRow
from podium.conductors.plan import parse, write, write_acceptance
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import DEFAULT_MAX_STEPS, Step, Workflow

POOL: Final = Pool(
    tuple(
        WorkerProfile(name=name)
        for name in ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b")
    )
)

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

_QUIRKS: Final = (
    '<think>A draft: model_id = [1] subtasks = ["x"] access_list = [[]]</think>\n'
    'model_id = [2, 0]\nsubtasks = ["a", "b"]\naccess_list = [[], ["all"]]',
    '```python\nmodel_id = [2]\nsubtasks = ["""a"""]\naccess_list = [[]]\n```\n',
    "**model_id**: [2, 0]\n**subtasks:** [“a”, ‘b’]\n**access_list = [[], [“all”]]**",
    "Model IDs: ['2', `0`]\nSub-Task: ['a', 'b',]\nACCESS-LIST：[None, [ALL]]",
    'model_id = [\n 2, # the planner\n 0,\n]\nsubtasks = ["a",\n"b"]\naccess = [[], "all"]\nDone.',
    r"model\_ids = [2]" + "\n" + r'subtasks = ["\u00e9\ud83d\ude00\x41\q"]' + "\naccess=[null]",
    '{"model_id": [2], "subtasks": ["a"], "access_list": [[]]}',
    "{'steps': [{'worker': 'gpt-5', 'subtask': 'a', 'access': None}, "
    "{'access': ['all', 0], 'worker': '0', 'subtask': 'b', 'id': {'x': [1]}}]}",
    '{"reasoning": "\\"steps\\": [two]", "plan": {"steps": '
    '[{"worker": 2, "subtask": "a", "access": []}]}}',
    'subtasks = ["a"]\nmodel_id = [0]\nsubtasks = ["b]\naccess_list = [[]]',
    "I would ask the second model.",
    "",
)

SEEDS: Final = (
    *(write(workflow, POOL) for workflow in _WORKFLOWS),
    *(write(workflow, POOL, order="step-by-step") for workflow in _WORKFLOWS),
    write_acceptance(),
    write_acceptance("step-by-step"),
    *_QUIRKS,
)

UNITS: Final = (
    *("[", "{", '"', "`", "\\", " ", "<think>", "access list ", "access" + " " * 50, "}\n"),
    *("model_id = [", "model_id = [[[[[[[", 'subtasks = ["', "subtasks = ['\"", "subtasks = [“"),
    *("subtasks = ['''\"\"\"", "model_id=[\"a\", \"model_id=['b', '", '"model_id=[" # "\n,'),
    *('"steps": [{"steps": [{', '"steps":[{"a":1,', 'subtasks = ["\\'),
    *('subtasks = ["x"]\nmodel_id = [0]\n', 'model_id=[0] subtasks=["x"] access=[[]]\n'),
)
"""Repeated to see how time grows, beside what the fuzzer finds."""


LONGEST: Final = 3000
"""Longer texts take a new path rarely; growth is measured separately."""

TOKENS: Final = (
    *("model_id = [", "subtasks = [", "access_list = [", "model_id", "subtasks", "access_list"),
    *("Model IDs: ", "access: ", "sub-task: [", "model\\_id=[", '"steps": [', "{'steps': ["),
    *('"worker": ', '"subtask": ', '"access": ', '{"', '"}', "[]", "[[]]", "[0]", '["all"]', "all"),
    *("<think>", "</think>", "<thinking>", "</thinking>", "```json\n", "```", "~~~", "**", "`"),
    *('"', "'", '"""', "'''", "“", "”", "‘", "’", "„", "\\", "\\u", "\\ud83d", "\\U0011ffff"),
    *("\\x", "\\x41", "\\\n", "\n", "\r\n", "\t", ",", ":", "=", "：", "[", "]", "{", "}", "# "),
    *("None", "null", "true", "nan", "none", "ALL", "-1", "0", "1", "2", "3", "4", "5", "0x1"),
)
ODD_CHARACTERS: Final = (
    *("\x00", "\x1b", "\x7f", "\x85", "\xa0", "\xad", "\u0130", "\u0131", "\u017f", "\u212a"),
    *("\u0660", "\u06f3", "\u0967", "\uff10", "\uff3b", "\uff02", "\u2028", "\u2029", "\u202e"),
    *("\u200b", "\u200d", "\ufeff", "\ufffd", "\ufffe", "\ud800", "\udfff", "\U0001f600", "é"),
    *("e\u0301", "ß", "ﬀ", "\U000e0041", "\U0010ffff", "\u3000", "\x1c", "\x0c"),
)
NUMBERS: Final = (
    *("-1", "00", "999999999", "1000000000", "9" * 30, "9" * 5000, "-" + "9" * 400, "1e9", "1.0"),
    *("+1", "0b1", "1_0", "²", "٣", "９", "inf", "-0", "2147483648", "18446744073709551616"),
)
OPENERS: Final = ("[", "{", '["', '{"a":', "[[", "<think>", "(", "```", "“")
CLOSERS: Final = ("]", "}", '"]', "}", "]]", "</think>", ")", "```", "”")

_NUMBER: Final = re.compile(r"[0-9]+")
_WORD: Final = re.compile(r"\w+|[^\w\s]")

Mutator = Callable[[str, Random], str]


def _between(text: str, chance: Random) -> tuple[int, int]:
    start = int(chance.random() * (len(text) + 1))
    length = int(chance.random() ** 3 * 80)
    return start, min(len(text), start + length)


def changed(text: str, chance: Random) -> str:
    start, _ = _between(text, chance)
    letter = text[start - 1 : start] if chance.random() < 0.5 else chr(chance.randrange(0x250))
    return text[:start] + letter + text[start + int(chance.random() * 2) :]


def cut(text: str, chance: Random) -> str:
    start, end = _between(text, chance)
    return text[:start] + text[end:]


def truncated(text: str, chance: Random) -> str:
    middle = int(chance.random() * (len(text) + 1))
    return text[:middle] if chance.random() < 0.8 else text[middle:]


def with_token(text: str, chance: Random) -> str:
    start, end = _between(text, chance)
    kept = start if chance.random() < 0.6 else end
    return text[:start] + chance.choice(TOKENS) + text[kept:]


def with_odd_character(text: str, chance: Random) -> str:
    start, _ = _between(text, chance)
    return text[:start] + chance.choice(ODD_CHARACTERS) + text[start:]


def with_number(text: str, chance: Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text + chance.choice(NUMBERS)
    here = chance.choice(found)
    return text[: here.start()] + chance.choice(NUMBERS) + text[here.end() :]


def repeated(text: str, chance: Random) -> str:
    start, end = _between(text, chance)
    times = chance.choice((2, 3, 8, 40))
    return text[:start] + text[start:end] * times + text[end:]


def nested(text: str, chance: Random) -> str:
    start, end = _between(text, chance)
    which, depth = chance.randrange(len(OPENERS)), chance.choice((1, 1, 2, 5, 7, 30))
    closing = CLOSERS[which] * depth if chance.random() < 0.7 else ""
    return f"{text[:start]}{OPENERS[which] * depth}{text[start:end]}{closing}{text[end:]}"


def words_exchanged(text: str, chance: Random) -> str:
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    first, second = sorted(chance.sample(words, 2), key=lambda word: word.start())
    return (
        f"{text[: first.start()]}{second.group()}{text[first.end() : second.start()]}"
        f"{first.group()}{text[second.end() :]}"
    )


def quoted_otherwise(text: str, chance: Random) -> str:
    quotes = ('"', "'", "“", "”", "‘", '"""', "`", '\\"')
    old, new = chance.choice(quotes), chance.choice(quotes)
    return text.replace(old, new, chance.choice((1, 2, -1)))


MUTATORS: Final[Sequence[Mutator]] = (
    changed,
    changed,
    cut,
    truncated,
    with_token,
    with_token,
    with_odd_character,
    with_number,
    repeated,
    nested,
    words_exchanged,
    quoted_otherwise,
)


def mutated(text: str, other: str, chance: Random) -> str:
    """Apply one to four mutations, sometimes joined with a piece of another text."""
    if chance.random() < 0.15:
        start, end = _between(other, chance)
        middle = int(chance.random() * (len(text) + 1))
        text = text[:middle] + (other[start:] if chance.random() < 0.5 else other[start:end])
    for _ in range(1 + int(chance.random() ** 2 * 4)):
        text = MUTATORS[int(chance.random() * len(MUTATORS))](text, chance)
    return text[:LONGEST]


TRACED_SHARE: Final = 1 / 50
WHERES: Final = frozenset({"model_id", "subtasks", "access_list", "steps", "plan"})
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
class PlanCampaign:
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
        """Parse that many texts, or as many as time allows."""
        for text in SEEDS:
            self._read(text, READINGS[0], traced=True)
        chance, corpus = self.chance, self.corpus
        while self.texts < count and len(self.findings) < MOST_FINDINGS:
            if not self.texts % 64 and time.perf_counter() > ends_at:
                break
            # What joined last has been tried least.
            position = int(chance.random() ** 0.5 * len(corpus))
            text = mutated(corpus[position], corpus[int(chance.random() * len(corpus))], chance)
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
        """Repeat a slow reading, for another program may have had the processor."""
        seconds = _cpu_seconds(text, reading)
        if seconds > _allowed(text):
            broken = f"{len(text)} characters took {seconds * 1000:.1f} ms"
            self.findings.append(Finding(broken, repr(text)))

    def slowest_growth(self, families: int, ends_at: float) -> float:
        """Return the largest cost of doubling a repetitive text."""
        slowest = 0.0
        fixed = (("", unit, "") for unit in UNITS)
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
    ends_at = began + seconds
    one = PlanCampaign(Random(seed))  # noqa: S311 - chance that can be repeated, and no secret
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
    """Return the CPU time of the fastest of several readings."""
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        reading(text)
        best = min(best, time.thread_time() - began)
    return best


def _growth(family: tuple[str, str, str], times: int = 1) -> float:
    """Return the cost of doubling the text; 2 where it is too fast to judge."""
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
