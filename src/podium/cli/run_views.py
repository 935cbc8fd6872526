"""A stored run as text, and the differences between two runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Any, Final

from podium.cli.output import (
    clean_text,
    describe_check,
    describe_run_end,
    describe_step,
    describe_step_end,
    echo,
    format_local_time,
    format_seconds,
    format_tokens,
    format_usage,
    format_usd,
    plan_lines,
    to_one_line,
)
from podium.core.run import Attempt, GuardrailCheck, Round, Run, StepRecord


@dataclass(frozen=True, slots=True)
class RunDifference:
    """A value that differs between two runs; None if a run has none."""

    field: str
    first: str | None
    second: str | None


def compare_runs(first: Run, second: Run) -> list[RunDifference]:
    """Return all differences, in the order in which a run happens."""
    pairs = (*_settings(first, second), *_steps(first, second), *_end(first, second))
    return [RunDifference(field, one, other) for field, one, other in pairs if one != other]


def print_differences(differences: list[RunDifference]) -> None:
    """Print short values side by side, and long texts as a diff."""
    if not differences:
        echo("the two runs do not differ")
    for difference in differences:
        first, second = clean_text(difference.first or ""), clean_text(difference.second or "")
        if difference.first is None or difference.second is None:
            only = "second" if difference.first is None else "first"
            echo(f"{difference.field}: only in the {only}: {first or second}")
        elif "\n" in first + second:
            echo(f"{difference.field}:")
            lines = unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=1)
            echo("\n".join(f"  {line}" for line in [*lines][2:]))
        else:
            echo(f"{difference.field}:\n  - {first}\n  + {second}")


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
                describe_step(position, step) for position, step in enumerate(round_.workflow.steps)
            )
            for round_ in (first, second)
        ]
        yield f"plan of round {index + 1}", plans[0], plans[1]
        records = [
            {record.index: record for record in round_.steps} if round_ is not None else {}
            for round_ in (first, second)
        ]
        for position in sorted({*records[0], *records[1]}):
            yield (
                f"reply of step {position} in round {index + 1}",
                _outcome(records[0].get(position)),
                _outcome(records[1].get(position)),
            )


def _outcome(record: StepRecord | None) -> str | None:
    if record is None:
        return None
    return record.reply if record.status == "done" else f"{record.status}: {record.error}"


def _end(one: Run, other: Run) -> Pairs:
    yield "status", one.status, other.status
    yield "answer", one.answer, other.answer
    yield "calls", str(len([*one.calls])), str(len([*other.calls]))
    yield "tokens", format_tokens(one.usage.total_tokens), format_tokens(other.usage.total_tokens)
    yield "cost", format_usd(one.cost_usd), format_usd(other.cost_usd)
    yield "time", format_seconds(one.spent.seconds), format_seconds(other.spent.seconds)


def comparison_document(differences: list[RunDifference]) -> list[dict[str, Any]]:
    return [asdict(difference) for difference in differences]


INDENT: Final = "  "


def run_lines(run: Run, *, prompts: bool = False, cut_off: bool = False) -> Iterator[str]:
    """Yield the lines of a run, without its answer. With `prompts`, include the conductor's text
    and each worker's prompt. `cut_off` marks a running run whose process is gone."""
    yield f"question: {clean_text(run.question)}"
    yield f"started: {format_local_time(run.created_at)}, tier {run.tier}"
    yield from _check_lines(run.guardrail_checks, "")
    for round_ in run.rounds:
        yield ""
        yield from _round_lines(run, round_, prompts)
    yield ""
    yield to_one_line(describe_run_end(run, cut_off=cut_off))
    if run.error is not None:
        yield f"error: {to_one_line(run.error)}"


def _round_lines(run: Run, round_: Round, prompts: bool) -> Iterator[str]:
    yield from plan_lines(run, round_)
    yield from _attempt_lines(round_.planning_attempts, prompts)
    if prompts and round_.plan_text:
        yield f"{INDENT}the conductor wrote:"
        yield from _indent(round_.plan_text, 2)
    for record in (*round_.cancelled_steps, *round_.steps):
        yield ""
        yield from _step_lines(record, prompts)


def _step_lines(record: StepRecord, prompts: bool) -> Iterator[str]:
    yield to_one_line(f"step {record.index} {record.worker}: {describe_step_end(record)}")
    yield from _attempt_lines(record.attempts, prompts)
    yield from _check_lines(record.guardrail_checks, INDENT)
    if prompts and record.prompt:
        yield f"{INDENT}prompt:"
        yield from _indent(record.prompt, 2)
    for nested in record.nested:
        yield f"{INDENT}nested run:"
        for line in run_lines(nested, prompts=prompts):
            yield from _indent(line, 2)
    if prompts and record.reply:
        yield f"{INDENT}reply:"
    yield from _indent(record.reply, 2 if prompts else 1)


def _attempt_lines(attempts: tuple[Attempt, ...], prompts: bool) -> Iterator[str]:
    """List the calls if one failed, or if prompts are shown."""
    if not prompts and all(attempt.error is None for attempt in attempts):
        return
    before: str | None = None
    for number, attempt in enumerate(attempts, start=1):
        duration = format_seconds((attempt.finished_ms - attempt.started_ms) / 1000)
        used = f"{format_usage(attempt.usage)}, {format_usd(attempt.cost_usd)}, {duration}"
        error = "as before" if attempt.error == before else attempt.error
        outcome = f"failed, {error}; " if attempt.error is not None else ""
        before = attempt.error
        line = f"attempt {number} by {attempt.worker}: {outcome}{used}"
        yield INDENT + to_one_line(line)


def _check_lines(checks: tuple[GuardrailCheck, ...], indent: str) -> Iterator[str]:
    for check in checks:
        yield indent + to_one_line(describe_check(check))


def _indent(text: str, depth: int) -> Iterator[str]:
    for line in clean_text(text).splitlines():
        yield INDENT * depth + line if line else ""
