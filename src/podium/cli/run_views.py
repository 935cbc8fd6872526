"""A stored run as text, and the differences between two runs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import starmap
from typing import Final, NamedTuple

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


class RunDifference(NamedTuple):
    """A value that differs between two runs; None if a run has none."""

    field: str
    first: str | None
    second: str | None


def compare_runs(first: Run, second: Run) -> list[RunDifference]:
    """Return all differences, in the order in which a run happens."""
    ones, others = dict(_values(first)), dict(_values(second))
    pairs = (RunDifference(field, ones.get(field), others.get(field)) for field in ones | others)
    return [pair for pair in pairs if pair.first != pair.second]


def _values(run: Run) -> Iterator[tuple[str, str]]:
    """Yield what runs are compared by: settings, the end, plans and replies."""
    yield "question", run.question
    yield "conductor", run.conductor
    yield "tier", run.tier
    yield "pool", ", ".join(run.pool.names)
    yield "status", run.status
    yield "answer", run.answer or ""
    yield "calls", str(len([*run.calls]))
    yield "tokens", format_tokens(run.usage.total_tokens)
    yield "cost", format_usd(run.cost_usd)
    yield "time", format_seconds(run.spent.seconds)
    for number, round_ in enumerate(run.rounds, start=1):
        if round_.workflow is not None:
            steps = enumerate(round_.workflow.steps)
            yield f"plan of round {number}", "\n".join(starmap(describe_step, steps))
        for record in round_.steps:
            outcome = (
                record.reply if record.status == "done" else f"{record.status}: {record.error}"
            )
            yield f"reply of step {record.index} in round {number}", outcome


def print_differences(differences: list[RunDifference]) -> None:
    """Print short values side by side, and long texts as a diff."""
    if not differences:
        echo("the two runs do not differ")
    for field, *values in differences:
        first, second = (clean_text(value or "").splitlines() for value in values)
        echo(f"{field}:")
        for line in list(unified_diff(first, second, lineterm="", n=1))[2:]:
            if not line.startswith("@@"):
                echo(f"  {line[0]} {line[1:]}")


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
