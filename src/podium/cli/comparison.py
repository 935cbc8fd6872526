"""What differs between two runs: how they were asked, planned, carried out, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import zip_longest

from podium.cli.output import say
from podium.cli.text import clean, money, seconds, tokens
from podium.cli.wording import step_line
from podium.run import Run, StepRecord


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
