"""What a store is: it keeps runs while they happen and gives them back afterwards.

A run is written in pieces: when it begins, when a round is planned, when a step ends, and when
it is finished. Every write may be repeated, so that a resumed run can write the same step again.
Where the pieces are kept is not said here; `NullStore` keeps them nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

from podium.core.errors import NotFound
from podium.core.run import Round, Run, RunStatus, StepRecord, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyTotals:
    """What the runs of one day, tier and owner came to, those that still go on left out.

    Money and tokens are sums over the runs of which they are known; `unknown_cost` and
    `unknown_tokens` count the others.
    """

    day: str
    tier: Tier
    owner: str
    runs: int
    tokens: int
    cost_usd: float
    unknown_tokens: int
    unknown_cost: int


@dataclass(frozen=True, slots=True)
class RunRevision:
    """A run, and when it was last written: as long as that stands, so does all of it."""

    id: str
    updated_at: str


class RunStatistics(Protocol):
    """Reads many runs. Every method raises `StoreError` when the store cannot do its work. An
    `owner` of None stands for everybody, and an empty one for runs without a key."""

    async def daily_totals(
        self, *, since: str, until: str, owner: str | None = None
    ) -> list[DailyTotals]:
        """What the runs of these days came to, by day, tier and owner."""
        ...

    async def list_revisions(
        self, *, since: str, until: str, limit: int, owner: str | None = None
    ) -> list[RunRevision]:
        """The runs of these days that do not go on any more, the newest first."""
        ...

    async def load(self, ids: Sequence[str]) -> list[Run]:
        """These runs, whole, in no particular order; those that are gone, or that cannot be read
        any more, are left out."""
        ...


LONGEST_COMMENT: Final = 10_000
LONGEST_ANSWER: Final = 2_000
"""Characters that are kept of a person's words, and of the answer that they say is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A judgement of a run: `score` is from 0 (useless) to 1 (just right). The latest stands, but
    a grader's never in the place of a person's.

    `grader` is the name of the grader whose judgement it is, and empty where it is a person's.
    `task` is a line of a file of tasks: the one that it graded by, or the question with the answer
    that a person says is right; empty where there is none.
    """

    run_id: str
    score: float
    comment: str = ""
    given_at: str
    grader: str = ""
    task: str = ""

    @property
    def answer(self) -> str:
        """The answer that a person says is right; empty where nobody does."""
        return str(json.loads(self.task)["answer"]) if self.task and not self.grader else ""


def correction_task(question: str, answer: str) -> str:
    """The task that a person makes who says what is right; empty where they say nothing."""
    if not answer.strip():
        return ""
    task = {"question": question, "answer": answer.strip(), "grader": "contains"}
    return json.dumps(task, ensure_ascii=False)


class FeedbackStore(Protocol):
    """Keeps judgements beside the runs. A run that is deleted takes its own with it."""

    async def save(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one, unless that is a person's and this is a
        grader's; raises `NotFound` without such a run."""
        ...

    async def delete(self, run_id: str) -> None:
        """Forget what was thought of that run; raises `NotFound` where nobody said."""
        ...

    async def get(self, run_id: str) -> Feedback | None:
        """What was thought of that run, if anybody said."""
        ...

    async def page(self, after: str = "", *, limit: int = 500) -> Sequence[Feedback]:
        """Judgements in the order of their runs' ids, those after that id; none of a run that is
        only held for a while, as nothing of it is to be kept."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A request by its name, which is its owner's own. `digest` tells its body from others;
    `process` is to begin its run, or has."""

    owner: str
    name: str
    digest: str
    run_id: str
    process: str
    created_at: str


class IdempotencyStore(Protocol):
    """Keeps the names beside the runs, for a day."""

    async def register(self, request: IdempotentRequest) -> IdempotentRequest:
        """Write the request down unless one of its name is there already; give the one that is."""
        ...

    async def take_over(self, found: IdempotentRequest, process: str) -> IdempotentRequest | None:
        """Have that process begin the run of a request whose own process ended before, or has said
        nothing for as long as a lease: the request as it is then. None where it may still begin, or
        another did so first."""
        ...

    async def remove(self, request: IdempotentRequest) -> None:
        """Forget a request that came to no run, unless somebody has taken it up meanwhile."""
        ...


LAST: Final = "last"
"""The word that names the newest run wherever an id is expected."""

LEASE_SECONDS: Final = 60.0
"""How long a run counts as being performed after its process last said so, unless the settings
say otherwise."""

RECENT_HOURS: Final = 24
"""A run that nobody has performed for longer is not gone on with unless somebody asks for it."""

SUMMARY_CHARACTERS: Final = 500
"""How much of a question and of an answer a summary holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in a list. The question and the answer are cut to `SUMMARY_CHARACTERS`.

    `cost_usd`, `total_tokens`, `calls` and `seconds` are unknown until the run has ended. `steps`
    and `rounds` are those written so far, and `workers` everyone whom these steps used, those of
    nested runs included; `owner` is the id of the key that it was asked with, or nothing.
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
class AbandonedRun:
    """A run that says that it is running, and that no process performs. `takeovers` counts how
    often it was taken over since a step of it was last done."""

    id: str
    owner: str
    takeovers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are wanted of a list; a field that is None leaves none out.

    `text` is in the question or the answer, in capitals or not. A `worker` is one that any step
    used, those of nested runs included. `cost_from` and `cost_to` are dollars, `since` and `until`
    moments at which a run may have been begun, all of them included; a cost that is unknown is in
    no range. `owner` is the id of the key that a run was asked with.
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


@runtime_checkable
class RunStore(Protocol):
    """Keeps runs. Every method raises `StoreError` when the store cannot do its work, and those
    that write of a run raise `RunTakenOver` when it was begun or claimed here and another process
    has claimed it since."""

    async def begin(self, run: Run) -> None:
        """Write a run that begins or is resumed, with the rounds and steps it already has. One that
        was not claimed here must be new: `RunTakenOver` is raised where another process began
        it."""
        ...

    async def save_round(self, run_id: str, round_: Round) -> None:
        """Write a round that was planned. Its steps are not written: `step` does that."""
        ...

    async def save_step(self, run_id: str, step: StepRecord) -> None:
        """Write a step that has ended. The plan of its round must have been written before."""
        ...

    async def finish(self, *runs: Run) -> None:
        """Write each run whole, in place of all that was written of it before: all of them, or
        none where an error is raised. Several at once cost little more than one."""
        ...

    async def save_until(self, run: Run, until: str) -> None:
        """Write a run whole, as `finish` does, that nobody wants kept: it may be forgotten after
        that moment, unless it is written in another way before."""
        ...

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """Take a run up for that process: it is running from now on, and is given as it was
        before. A `takeover` is counted on the run.

        A run is named as for `load`. Raises `Conflict` where somebody else performs it, or has
        taken it up at the same moment, and `NotFound` and `UsageError` as `load` does.
        """
        ...

    async def release_claim(self, run: Run) -> None:
        """Have a run that was claimed here, and has not begun again, be as it was before; one that
        was cut off is for whoever looks next. Nothing is done to any other."""
        ...

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Write down that these runs are still being performed, and give those that another
        process has claimed meanwhile. One of which no process says so for the time of a lease may
        be claimed."""
        ...

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """Runs that were cut off with their processes in the last `RECENT_HOURS`, the longest
        silent first, at most so many; those that are only held are left out."""
        ...

    async def is_claimed(self, run_id: str) -> bool:
        """Whether a process is at work on the run with that whole id, be it another one than
        this."""
        ...

    async def load(self, run_id: str) -> Run:
        """Give back a run by its id, by the beginning of it (`run_` may be left out), or `last`.

        Raises `NotFound` when there is none, and `UsageError` when there are several.
        """
        ...

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """The newest of the wanted runs first, at most `limit` of them.

        `before` keeps only those older than the run so named (as for `load`, and among those of
        the wanted owner), which makes the id of a page's last run the way to the next page.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Forget a run and all that it holds. Only its whole id will do. Raises `NotFound` when
        there is none."""
        ...

    async def delete_before(self, moment: str) -> int:
        """Forget every run that was begun before that moment, as `podium.run.timestamp` writes
        it, and say how many; those that are still being performed are left."""
        ...

    async def delete_expired(self) -> int:
        """Forget every run that was held for long enough, and say how many; those that are being
        performed are left."""
        ...

    async def close(self) -> None:
        """Release what the store holds open. The store cannot be used afterwards."""
        ...


class NullStore:
    """Keeps nothing."""

    async def begin(self, run: Run) -> None:
        """Forget it."""

    async def save_round(self, run_id: str, round_: Round) -> None:
        """Forget it."""

    async def save_step(self, run_id: str, step: StepRecord) -> None:
        """Forget it."""

    async def finish(self, *runs: Run) -> None:
        """Forget them."""

    async def save_until(self, run: Run, until: str) -> None:
        """Forget it."""

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """There is never such a run."""
        raise NotFound(f"no run {run_id!r}: runs are not being stored")

    async def release_claim(self, run: Run) -> None:
        """There is never such a run."""

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Forget it."""
        return ()

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """There are never any."""
        return ()

    async def is_claimed(self, run_id: str) -> bool:
        """There is never such a run."""
        return False

    async def load(self, run_id: str) -> Run:
        """There is never such a run."""
        raise NotFound(f"no run {run_id!r}: runs are not being stored")

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """No runs."""
        return []

    async def delete(self, run_id: str) -> None:
        """There is never such a run."""
        raise NotFound(f"no run {run_id!r}: runs are not being stored")

    async def delete_before(self, moment: str) -> int:
        """There are never any."""
        return 0

    async def delete_expired(self) -> int:
        """There are never any."""
        return 0

    async def close(self) -> None:
        """Nothing is held open."""
