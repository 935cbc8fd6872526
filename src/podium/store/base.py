"""Interfaces and records of a store.

A run is written in pieces: as it begins, as each round is planned, as each step ends, and as a
whole when it is finished. Each write may be repeated, so that a resumed run can write a step again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import ConfigError, NotFound
from podium.core.run import Round, Run, RunStatus, StepRecord, Tier

if TYPE_CHECKING:  # these load SQLAlchemy
    from podium.store.sql.queries import RunStatistics
    from podium.store.sql.records import (
        AuditLog,
        ChatStore,
        DisabledWorkerStore,
        FeedbackStore,
        IdempotencyStore,
        KeyStore,
    )

LAST: Final = "last"
"""Names the newest run wherever an id is expected."""

LEASE_SECONDS: Final = 60.0
"""The default time without a heartbeat after which a process loses its runs."""

RECENT_HOURS: Final = 24
"""Runs abandoned for longer are resumed only by hand."""

SUMMARY_CHARACTERS: Final = 500
"""The length to which a summary cuts question and answer."""

MAX_COMMENT: Final = 10_000
MAX_ANSWER: Final = 2_000
"""The most characters of a comment, and of the answer that a person says is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in a list. Question and answer are cut to `SUMMARY_CHARACTERS`.

    `cost_usd`, `total_tokens`, `calls` and `seconds` are unknown until the run has ended. `workers`
    includes those of nested runs; `owner` is the id of the key of the run, or empty.
    """

    id: str
    created_at: str
    updated_at: str
    status: RunStatus
    question: str
    answer: str | None
    conductor: str
    tier: str
    cost_usd: float | None
    total_tokens: int | None
    calls: int | None
    seconds: float | None
    owner: str
    steps: int
    rounds: int
    workers: tuple[str, ...]


RunList = list[RunSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Selects runs of a list; None matches all.

    `text` is searched in question and answer, ignoring case. `worker` includes those of nested
    runs. Ranges are inclusive; an unknown cost is in none.
    """

    text: str | None = None
    status: RunStatus | None = None
    tier: Tier | None = None
    worker: str | None = None
    cost_from: float | None = None
    cost_to: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    owner: str | None = None


EVERY_RUN: Final = RunFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedRun:
    """A running run whose process died. `takeovers` counts those since its last finished step."""

    id: str
    owner: str
    takeovers: int


_PARTS: Final = {
    "audit": "an audit log",
    "chats": "conversations",
    "disabled_workers": "disabled workers",
    "feedback": "feedback",
    "idempotency": "idempotency keys",
    "keys": "API keys",
    "statistics": "statistics of runs",
}
"""What a store with a database holds beside the runs."""


class RunStore:
    """Stores runs. This base class stores nothing; its other parts raise `ConfigError`.

    Methods raise `StoreError` when the store fails. Those that write to a run begun or claimed
    here raise `RunTakenOver` when another process has claimed it since. `is_write_ahead`: a run
    must be written before its first call.
    """

    audit: AuditLog
    chats: ChatStore
    disabled_workers: DisabledWorkerStore
    feedback: FeedbackStore
    idempotency: IdempotencyStore
    keys: KeyStore
    statistics: RunStatistics
    is_write_ahead = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _PARTS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise ConfigError(
                f"no database for {_PARTS[name]}: runs are not stored; name one under [store] in "
                f"podium.toml"
            )

    async def begin(self, run: Run) -> None:
        """Write a run that begins or is resumed, with the rounds and steps it already has; raises
        `RunTakenOver` if it is new here and another process began it."""

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        """Write a planned round without its steps, or a finished step of a round written before."""

    async def finish(self, *runs: Run) -> None:
        """Write ended runs in one transaction, replacing all that was written of them."""

    async def save_until(self, run: Run, until: str) -> None:
        """Write an ended run, as `finish` does, to be deleted after `until`. A later write of the
        run by another method cancels the deletion."""

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """Claim a run for a process and return it as it was; its status becomes running.

        The run is named as for `load`. Raises `Conflict` if a live process performs it or claims it
        at the same moment. A `takeover` is counted on the run.
        """
        raise _not_stored(run_id)

    async def release_claim(self, run: Run) -> None:
        """Restore a run that was claimed here and has not begun again."""

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Renew the leases of these runs; return those that another process has claimed."""
        return ()

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """List runs whose process died in the last `RECENT_HOURS`, oldest heartbeat first, without
        those that expire."""
        return ()

    async def is_claimed(self, run_id: str) -> bool:
        """True if a live process, this or another, performs the run with that full id."""
        return False

    async def load(self, run_id: str) -> Run:
        """Load a run by its id, the beginning of it (`run_` may be left out), or `last`.

        Raises `NotFound`, and `UsageError` if several ids begin so.
        """
        raise _not_stored(run_id)

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """List the newest runs that match the filter.

        `before` names the last run of the page before, as for `load` and among the filter's owner.
        """
        return []

    async def delete(self, run_id: str) -> None:
        raise _not_stored(run_id)

    async def delete_before(self, moment: str) -> int:
        """Delete runs created before the timestamp, except those still running; return how many."""
        return 0

    async def delete_expired(self) -> int:
        """Delete expired runs, except those still running; return how many."""
        return 0

    async def close(self) -> None:
        """Close the store. It cannot be used afterwards."""


def _not_stored(run_id: str) -> NotFound:
    return NotFound(f"run not found: {run_id!r}; runs are not being stored")


@dataclass(frozen=True, slots=True)
class RunRevision:
    """A run and when it was last written; an equal revision has equal content."""

    id: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A judgement of a run, from 0 (useless) to 1 (right). The latest counts, but a grader's never
    replaces a person's.

    `grader` is empty for a person. `task` is a line of a task file: the one graded by, or the
    question with the answer that a person says is right; it may be empty.
    """

    run_id: str
    score: float
    comment: str = ""
    given_at: str
    grader: str = ""
    task: str = ""

    @property
    def answer(self) -> str:
        """The answer that a person says is right, or an empty string."""
        return str(json.loads(self.task)["answer"]) if self.task and not self.grader else ""


def correction_task(question: str, answer: str) -> str:
    """Build the task line of a question and its right answer; empty without an answer."""
    if not answer.strip():
        return ""
    task = {"question": question, "answer": answer.strip(), "grader": "contains"}
    return json.dumps(task, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A request with an idempotency key, unique per owner. `digest` is that of its body; `process`
    begins its run."""

    owner: str
    key: str
    digest: str
    run_id: str
    process: str
    created_at: str
