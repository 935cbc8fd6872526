"""Conversion between runs and rows.

A run is split into one JSON document for itself, one per round and one per step. Documents are
pure ASCII, so that a NUL or a lone surrogate in a reply survives as an escape. The question and the
answer are stored a second time as plain columns for search; those hold U+FFFD in such places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import UnreadableRun
from podium.core.run import Round, Run, StepRecord, dump, load
from podium.store.sql.tables import ROUNDS, RUN_WORKERS, STEPS, insert_missing, upsert

Row = dict[str, Any]

MAX_INTEGER: Final = 2**63 - 1
"""The most that a column can hold; a larger token count stays in the document only."""

OWN: Final = -1
"""The round of a run's own document, and the step of a round's own."""


class Piece(NamedTuple):
    """A stored document and its place in the run."""

    round: int
    step: int
    document: str


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """New content of a run: the run as it begins, a planned round, or a finished step."""

    run_id: str
    content: Run | Round | StepRecord

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds to write."""
        if isinstance(self.content, Run):
            return self.content.rounds
        return (self.content,) if isinstance(self.content, Round) else ()

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps to write; those of a planned round are written as they end."""
        if isinstance(self.content, Run):
            return self.content.steps
        return (self.content,) if isinstance(self.content, StepRecord) else ()

    @property
    def is_progress(self) -> bool:
        """True if a step is done, so that a resumed run need not repeat it."""
        return isinstance(self.content, StepRecord) and self.content.status == "done"


async def write_contents(connection: AsyncConnection, updates: Sequence[RunUpdate]) -> None:
    """Write the rounds, steps and workers of the updates."""
    dialect = connection.dialect.name
    rounds = [round_row(update.run_id, round_) for update in updates for round_ in update.rounds]
    steps = [step_row(update.run_id, step) for update in updates for step in update.steps]
    workers = [row for update in updates for row in worker_rows(update.run_id, update.steps)]
    for statement, rows in (
        (upsert(dialect, ROUNDS), rounds),
        (upsert(dialect, STEPS), steps),
        (insert_missing(dialect, RUN_WORKERS), workers),
    ):
        if rows:
            await connection.execute(statement, rows)


def run_row(run: Run, now: str, expires_at: str | None = None) -> Row:
    """Build the row of the run itself. Totals stay unknown while it is running."""
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
        "total_tokens": _storable(run.usage.total_tokens) if ended else None,
        "calls": _storable(run.spent.calls) if ended else None,
        "seconds": run.spent.seconds if ended else None,
        "document": _encode(dump(replace(run, rounds=()))),
        "owner": plain(run.owner),
        "expires_at": expires_at,
        "process": plain(run.process),
    }


def round_row(run_id: str, round_: Round) -> Row:
    """Build the row of a round, without its steps."""
    document = _adapter(Round).dump_python(replace(round_, steps=()), mode="json")
    return {"run_id": run_id, "round": round_.index, "document": _encode(document)}


def step_row(run_id: str, step: StepRecord) -> Row:
    """Build the row of a step, including its nested runs."""
    document = _adapter(StepRecord).dump_python(step, mode="json")
    key_columns = {"run_id": run_id, "round": step.round, "step": step.index}
    return {**key_columns, "document": _encode(document)}


def worker_rows(run_id: str, steps: Iterable[StepRecord]) -> list[Row]:
    """Build a row for each worker that the steps used, sorted and without duplicates."""
    used = {(step.round, plain(worker)) for step in steps for worker in _workers_of(step)}
    return [
        {"run_id": run_id, "round": round_, "worker": worker} for round_, worker in sorted(used)
    ]


def _workers_of(step: StepRecord) -> Iterator[str]:
    if step.status == "skipped":
        return
    yield step.worker
    yield from (attempt.worker for attempt in step.attempts)
    for nested in step.nested:
        for item in nested.steps:
            yield from _workers_of(item)


def assemble(pieces: Iterable[Piece]) -> Run:
    """Build a run from its pieces, sorted by round and step."""
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
                f"cannot read this run: round {piece.round} of its steps is missing"
            )
        else:
            rounds[piece.round]["steps"].append(document)
    return load(run | {"rounds": list(rounds.values())})


def plain(text: str) -> str:
    """Replace what a text column cannot hold: NUL and lone surrogates."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def _storable(number: int | None) -> int | None:
    return None if number is None or number > MAX_INTEGER else number


def _encode(document: Row) -> str:
    return json.dumps(document, ensure_ascii=True, separators=(",", ":"))


def _decode(document: str) -> Row:
    try:
        decoded = json.loads(document)
    except ValueError as error:
        raise UnreadableRun(f"cannot read this run: its document is damaged ({error})") from error
    if not isinstance(decoded, dict):
        raise UnreadableRun("cannot read this run: its document is damaged (not an object)")
    return decoded


@cache
def _adapter(kind: type[Round | StepRecord]) -> TypeAdapter[Round | StepRecord]:
    return TypeAdapter(kind)
