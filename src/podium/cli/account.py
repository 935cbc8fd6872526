"""A run that was kept, told whole: plans, steps, attempts, replies, and the runs nested in it.

Every line is clean text, indented by what it belongs to. What `--json` prints is `document`; a
page for people is `export`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from podium.attempt import Attempt
from podium.check import Check
from podium.cli.text import clean, local_time, money, one_line, seconds, tokens_of
from podium.cli.wording import check_line, ending, plan_line, step_line, total
from podium.run import Round, Run, StepRecord

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


def _of_checks(checks: tuple[Check, ...], indent: str) -> Iterator[str]:
    for check in checks:
        yield indent + one_line(check_line(check))


def _indented(text: str, depth: int) -> Iterator[str]:
    for line in clean(text).splitlines():
        yield INDENT * depth + line if line else ""
