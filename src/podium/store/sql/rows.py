"""Runs as rows: what the store writes of a run, and how rows become a run again.

A run is cut into one document for itself, one for each round and one for each step. A document
is JSON in pure ASCII. Whatever a worker says can be kept that way: a NUL, or half of a surrogate
pair, which UTF-8 refuses, is an escape like any other and comes back as it was. (Two halves side
by side come back as the character that they spell, as JSON has it.) The question and the answer
are kept a second time as plain columns to search and list by; those hold U+FFFD in such places.

Which tables the rows go to is `tables`; nothing here touches a database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from podium.core.errors import UnreadableRun
from podium.core.run import Round, Run, StepRecord, dump, load

Row = dict[str, Any]

LARGEST_INTEGER: Final = 2**63 - 1
"""What a column can hold. A provider that claims more tokens is believed in the document only."""


OWN: Final = -1
"""Stands for the round of a run's own document, and for the step of a round's own."""


class Piece(NamedTuple):
    """A stored document and its place in the run."""

    round: int
    step: int
    document: str


def run_row(run: Run, now: str, forget_after: str | None = None) -> Row:
    """The row of the run itself, which may be one to forget after a moment. Totals are unknown
    while it is running."""
    ended = run.status != "running"
    return {
        "id": run.id,
        "version": run.version,
        "created_at": run.created_at,
        "updated_at": now,
        "status": run.status,
        "question": plain(run.question),
        "answer": None if run.answer is None else plain(run.answer),
        "conductor": plain(run.conductor),
        "tier": plain(run.tier),
        "cost_usd": run.cost_usd if ended else None,
        "total_tokens": _fitting(run.usage.total_tokens) if ended else None,
        "calls": _fitting(run.spent.calls) if ended else None,
        "seconds": run.spent.seconds if ended else None,
        "document": _encode(dump(replace(run, rounds=()))),
        "owner": plain(run.owner),
        "forget_after": forget_after,
        "process": plain(run.process),
    }


def round_row(run_id: str, round_: Round) -> Row:
    """The row of a round, without its steps."""
    document = _rounds().dump_python(replace(round_, steps=()), mode="json")
    return {"run_id": run_id, "round": round_.index, "document": _encode(document)}


def step_row(run_id: str, step: StepRecord) -> Row:
    """The row of a step, with the run that is nested in it."""
    document = _steps().dump_python(step, mode="json")
    return {
        "run_id": run_id,
        "round": step.round,
        "step": step.index,
        "document": _encode(document),
    }


def worker_rows(run_id: str, steps: Iterable[StepRecord]) -> list[Row]:
    """A row for each worker that the steps of a round used, sorted and each once."""
    used = {(step.round, plain(worker)) for step in steps for worker in _used(step)}
    return [
        {"run_id": run_id, "round": round_, "worker": worker} for round_, worker in sorted(used)
    ]


def _used(step: StepRecord) -> Iterator[str]:
    if step.status == "skipped":
        return
    yield step.worker
    yield from (attempt.worker for attempt in step.attempts)
    for nested in step.nested:
        for each in nested.steps:
            yield from _used(each)


def assemble(pieces: Iterable[Piece]) -> Run:
    """Put a run together from its pieces, sorted by round and step."""
    run: Row = {}
    rounds: dict[int, Row] = {}
    for piece in pieces:
        document = _decode(piece.document)
        if piece.round == OWN:
            run = document
        elif piece.step == OWN:
            rounds[piece.round] = document | {"steps": []}
        elif piece.round not in rounds:
            raise UnreadableRun(
                f"this run cannot be read: it has steps of round {piece.round}, which is missing"
            )
        else:
            rounds[piece.round]["steps"].append(document)
    return load(run | {"rounds": list(rounds.values())})


def plain(text: str) -> str:
    """The text as any database's text column can hold it."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def _fitting(number: int | None) -> int | None:
    return None if number is None or number > LARGEST_INTEGER else number


def _encode(document: Row) -> str:
    return json.dumps(document, ensure_ascii=True, separators=(",", ":"))


def _decode(document: str) -> Row:
    try:
        decoded = json.loads(document)
    except ValueError as error:
        raise UnreadableRun(
            f"this run cannot be read: its document is damaged ({error})"
        ) from error
    if not isinstance(decoded, dict):
        raise UnreadableRun("this run cannot be read: its document is damaged (not an object)")
    return decoded


@cache
def _rounds() -> TypeAdapter[Round]:
    return TypeAdapter(Round)


@cache
def _steps() -> TypeAdapter[StepRecord]:
    return TypeAdapter(StepRecord)
