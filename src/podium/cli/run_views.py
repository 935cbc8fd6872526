"""A run that was kept, told whole: plans, steps, attempts, replies, and the runs nested in it.

Every line is clean text, indented by what it belongs to. What `--json` prints is `document`; a
page for people is `export`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Any, Final

from podium.cli.formatting import (
    check_line,
    clean,
    ending,
    local_time,
    money,
    one_line,
    plan_line,
    seconds,
    step_line,
    tokens,
    tokens_of,
    total,
)
from podium.cli.output import say
from podium.core.run import Attempt, GuardrailCheck, Round, Run, StepRecord, dump


def as_json(run: Run) -> str:
    """All of the run, with its version; `podium.run.load` reads it back."""
    return json.dumps(dump(run), indent=2)


def as_markdown(run: Run) -> str:
    """The run as a page: question, answer, plans, and what every step was asked and replied."""
    parts = [f"# {_line(run.question)}", _line(f"{total(run)}, {run.created_at}")]
    if run.error is not None:
        parts.append(_line(f"Error: {run.error}"))
    parts += ["## Answer", _fenced(run.answer) if run.answer is not None else "There is none."]
    for round_ in run.rounds:
        parts.append(f"## {_line(plan_line(run, round_).capitalize())}")
        steps = round_.workflow.steps if round_.workflow else ()
        parts.append(
            "\n".join(f"- {_line(step_line(index, step))}" for index, step in enumerate(steps))
        )
        for record in round_.steps:
            parts.append(f"### Step {record.index}: {_line(record.worker)}")
            parts.append(_line(ending(record)))
            parts += ["Asked:", _fenced(record.prompt), "Replied:", _fenced(record.reply)]
    return "\n\n".join(part for part in parts if part)


def _line(text: str) -> str:
    """Text on one line, with what Markdown would obey made plain."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", one_line(text))


def _fenced(text: str) -> str:
    """Text as it is, inside a fence that nothing in it can close."""
    words = clean(text)
    longest = max((len(found) for found in re.findall("`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{words}\n{fence}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is one thing in the first run and another in the second; None: not there."""

    what: str
    one: str | None
    other: str | None


def compare(one: Run, other: Run) -> list[Difference]:
    """Everything that differs, in the order in which a run happens."""
    return [
        Difference(what, first, second)
        for what, first, second in (*_settings(one, other), *_steps(one, other), *_end(one, other))
        if first != second
    ]


def say_differences(differences: list[Difference]) -> None:
    """Short values side by side, texts of several lines as a diff."""
    if not differences:
        say("the two runs do not differ")
    for difference in differences:
        one, other = clean(difference.one or ""), clean(difference.other or "")
        if difference.one is None or difference.other is None:
            only = "second" if difference.one is None else "first"
            say(f"{difference.what}: only in the {only}: {one or other}")
        elif "\n" in one + other:
            say(f"{difference.what}:")
            lines = unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=1)
            say("\n".join(f"  {line}" for line in [*lines][2:]))
        else:
            say(f"{difference.what}:\n  - {one}\n  + {other}")


Pairs = Iterator[tuple[str, str | None, str | None]]


def _settings(one: Run, other: Run) -> Pairs:
    yield "question", one.question, other.question
    yield "conductor", one.conductor, other.conductor
    yield "tier", one.tier, other.tier
    yield "pool", ", ".join(one.pool.names), ", ".join(other.pool.names)


def _steps(one: Run, other: Run) -> Pairs:
    for index, (first, second) in enumerate(zip_longest(one.rounds, other.rounds)):
        plans = [
            None
            if round_ is None or round_.workflow is None
            else "\n".join(
                step_line(place, step) for place, step in enumerate(round_.workflow.steps)
            )
            for round_ in (first, second)
        ]
        yield f"plan of round {index + 1}", plans[0], plans[1]
        records = [
            {record.index: record for record in round_.steps} if round_ is not None else {}
            for round_ in (first, second)
        ]
        for place in sorted({*records[0], *records[1]}):
            yield (
                f"reply of step {place} in round {index + 1}",
                _outcome(records[0].get(place)),
                _outcome(records[1].get(place)),
            )


def _outcome(record: StepRecord | None) -> str | None:
    if record is None:
        return None
    return record.reply if record.status == "done" else f"{record.status}: {record.error}"


def _end(one: Run, other: Run) -> Pairs:
    yield "status", one.status, other.status
    yield "answer", one.answer, other.answer
    yield "calls", str(len([*one.calls])), str(len([*other.calls]))
    yield "tokens", tokens(one.usage.total_tokens), tokens(other.usage.total_tokens)
    yield "cost", money(one.cost_usd), money(other.cost_usd)
    yield "time", seconds(one.spent.seconds), seconds(other.spent.seconds)


def comparison_document(differences: list[Difference]) -> list[dict[str, Any]]:
    """What `runs diff` found."""
    return [asdict(difference) for difference in differences]


INDENT: Final = "  "


def account(run: Run, *, prompts: bool = False, cut_off: bool = False) -> Iterator[str]:
    """The lines of a run but for its answer. With `prompts`, also what the conductor wrote and
    what each worker was shown, word for word. `cut_off` says that it goes on no longer, though its
    record has no end."""
    yield f"question: {clean(run.question)}"
    yield f"asked: {local_time(run.created_at)}, tier {run.tier}"
    yield from _of_checks(run.checks, "")
    for round_ in run.rounds:
        yield ""
        yield from _of_round(run, round_, prompts)
    yield ""
    yield one_line(total(run, cut_off=cut_off))
    if run.error is not None:
        yield f"error: {one_line(run.error)}"


def _of_round(run: Run, round_: Round, prompts: bool) -> Iterator[str]:
    yield one_line(plan_line(run, round_))
    for index, step in enumerate(round_.workflow.steps if round_.workflow else ()):
        yield INDENT + one_line(step_line(index, step))
    if round_.routed is not None:
        yield f"{INDENT}{one_line(round_.routed.sentence)}"
    for warning in round_.warnings:
        yield f"{INDENT}note: {one_line(warning)}"
    yield from _of_attempts(round_.planning, prompts)
    if prompts and round_.plan_text:
        yield f"{INDENT}the conductor wrote:"
        yield from _indented(round_.plan_text, 2)
    for record in round_.steps:
        yield ""
        yield from _of_step(record, prompts)


def _of_step(record: StepRecord, prompts: bool) -> Iterator[str]:
    yield f"step {record.index} {one_line(record.worker)}: {one_line(ending(record))}"
    yield from _of_attempts(record.attempts, prompts)
    yield from _of_checks(record.checks, INDENT)
    if prompts and record.prompt:
        yield f"{INDENT}was shown:"
        yield from _indented(record.prompt, 2)
    for nested in record.nested:
        yield f"{INDENT}by a run of its own:"
        for line in account(nested, prompts=prompts):
            yield from _indented(line, 2)
    if prompts and record.reply:
        yield f"{INDENT}replied:"
    yield from _indented(record.reply, 2 if prompts else 1)


def _of_attempts(attempts: tuple[Attempt, ...], prompts: bool) -> Iterator[str]:
    """The calls, where they say more than their sum does."""
    if not prompts and all(attempt.error is None for attempt in attempts):
        return
    before: str | None = None
    for number, attempt in enumerate(attempts, start=1):
        took = seconds((attempt.finished_ms - attempt.started_ms) / 1000)
        used = f"{tokens_of(attempt.usage)}, {money(attempt.cost_usd)}, {took}"
        error = "as before" if attempt.error == before else attempt.error
        how = f"failed, {error}; " if attempt.error is not None else ""
        before = attempt.error
        yield f"{INDENT}attempt {number} by {one_line(attempt.worker)}: {one_line(how + used)}"


def _of_checks(checks: tuple[GuardrailCheck, ...], indent: str) -> Iterator[str]:
    for check in checks:
        yield indent + one_line(check_line(check))


def _indented(text: str, depth: int) -> Iterator[str]:
    for line in clean(text).splitlines():
        yield INDENT * depth + line if line else ""
