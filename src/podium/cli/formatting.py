"""How plans, steps and runs are put into words, for the drawing and for plain lines alike."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from podium.core.run import GuardrailCheck, Round, Run, StepRecord, total_usage
from podium.core.usage import Price, Usage
from podium.core.workflow import Access, Step
from podium.store import Feedback

_ESCAPES: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                  # colours, cursor movements
    | \x1b\] [^\x07\x1b\x9c]* (?:\x07|\x1b\\|\x9c)  # titles, links, the clipboard
    | \x1b[PX^_] [^\x1b\x9c]* (?:\x1b\\|\x9c)     # strings for the terminal itself
    | \x1b [ -/]* [0-~]                           # resets, character sets
    """,
    re.VERBOSE,
)
"""Whole sequences, so that not even their harmless half is left over. Each alternative stops at
the next escape, so that the time is linear whatever the text."""

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that reverse the direction of writing."""

_HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of a character, which no encoding can write."""


def clean(text: str) -> str:
    """The text with nothing in it but what can be read."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HALVES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text)))


def one_line(text: str) -> str:
    """The text, clean and without line breaks."""
    return " ".join(clean(text).split())


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def money(usd: float | None) -> str:
    """US dollars, with as many digits as small sums need: at least two that count."""
    if usd is None:
        return "cost unknown"
    if usd == 0:
        return "$0"
    if usd >= 0.1:
        return f"${usd:,.2f}"
    if usd >= 0.01:
        return f"${usd:.3f}".removesuffix("0")
    return f"${usd:.6f}".rstrip("0").rstrip(".") if usd >= 0.000001 else "under $0.000001"


def tokens(count: int | None) -> str:
    """A number of tokens."""
    if count is None:
        return "tokens unknown"
    return f"{count:,} token{'' if count == 1 else 's'}"


def tokens_of(usage: Usage) -> str:
    """The tokens of a usage, input and output together."""
    return tokens(usage.total_tokens)


def seconds(duration: float) -> str:
    """A time that was taken."""
    if duration < 60:
        return f"{duration:.1f} s"
    return f"{int(duration) // 60} min {int(duration) % 60} s"


def local_time(stamp: str) -> str:
    """A moment that was kept in UTC, as the clock on the wall has it."""
    return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M}"


def megabytes(count: int | None) -> str:
    """The size of a file."""
    return "size unknown" if count is None else f"{count / 1_000_000:,.0f} MB"


def counted(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def reads(access: Access) -> str:
    """What a step may read, in words."""
    if access == "all":
        return "reads all before it"
    return f"reads {', '.join(map(str, access))}" if access else "reads nothing"


def price(prices: Price | None) -> str:
    """What a worker takes for a million tokens."""
    if prices is None:
        return "price unknown"
    if prices.input == 0 and prices.output == 0:
        return "free"
    return f"${prices.input:g} in, ${prices.output:g} out a million tokens"


def plan_line(run: Run, round_: Round) -> str:
    """What the conductor decided in a round."""
    which = f"round {round_.index + 1}" if run.max_rounds > 1 or round_.index else "plan"
    if round_.accepted:
        return f"{which} by {run.conductor}: the answer stands"
    if round_.workflow is None:
        return f"{which} by {run.conductor}: no plan was made"
    if round_.role is not None:
        return f"{which} by {run.conductor}: a turn as {round_.role}"
    steps = counted(len(round_.workflow), "step")
    return f"{which} by {run.conductor}: {steps}, {round_.workflow.shape}"


def step_line(index: int, step: Step) -> str:
    """A step of a plan."""
    return f"{index} {step.worker}: {step.subtask} ({reads(step.access)})"


def took(record: StepRecord) -> str:
    """What a step that has ended used."""
    parts = [tokens_of(record.usage), money(record.cost_usd)]
    parts.append(seconds((record.finished_ms - record.started_ms) / 1000))
    if record.answered_by not in ("", record.worker):
        parts.append(f"by its fallback {record.answered_by}")
    return ", ".join(parts)


def ending(record: StepRecord) -> str:
    """How a step ended, and what it used."""
    if record.status == "done":
        return f"done, {took(record)}"
    return f"{record.status}: {record.error}"


def check_line(check: GuardrailCheck) -> str:
    """What a guardrail did, and what its verifier took."""
    why = f": {check.reason}" if check.reason else ""
    by = ""
    if check.attempts:
        used = tokens_of(total_usage(iter(check.attempts)))
        by = f" (asked {check.attempts[-1].worker}: {used})"
    return f"the guardrail {check.guardrail} {check.action} the {check.stage}{why}{by}"


CUT_OFF: Final = "cut off"
"""What a run is, in place of `running`, whose process is gone."""


def total(run: Run, *, cut_off: bool = False) -> str:
    """How a run ended and what it used, the conductor's part shown apart."""
    planning = run.orchestration.total_tokens
    used = tokens_of(run.usage)
    if planning and run.usage.total_tokens:
        used += f" ({planning:,} of them for planning)"
    parts = (counted(len([*run.calls]), "call"), used, money(run.cost_usd))
    status = CUT_OFF if cut_off else run.status
    return f"{status}: {', '.join(parts)}, {seconds(run.spent.seconds)}, {run.id}"


def thought(given: Feedback) -> str:
    """What was thought of an answer, by whom where it was a grader, and what would be right."""
    by = f" by {given.grader}" if given.grader else ""
    said = f": {given.comment}" if given.comment else ""
    right = f"; right would be: {given.answer}" if given.answer else ""
    return f"{given.score:g}{by}{said}{right}"
