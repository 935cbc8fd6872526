"""A run reduced to what figures are made of: its calls, and what each worker was used for.

A run that has ended does not change any more, so its digest is made once and kept, within bounds;
thousands of runs can be added up again whenever somebody looks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from podium.core.errors import UnreadableRun
from podium.core.roles import Role, roles
from podium.core.run import Run
from podium.core.run_records import Attempt
from podium.store.base import Accounts, RunMark

MOST_KEPT: Final = 10_000
"""Digests that are kept; of the usual run one is about a kilobyte."""

LOADED_AT_ONCE: Final = 50
"""Runs that are read in one go, so that nobody else waits for long."""

LONGEST_SUBTASK: Final = 300
LONGEST_ERROR: Final = 500

EARLIEST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
LATEST: Final = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
"""The first and the last second that a calendar has."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one worker. `at` is when it ended, in seconds since 1970."""

    worker: str
    at: float
    seconds: float
    error: str | None
    cost_usd: float | None
    tokens: int | None
    is_planning: bool


@dataclass(frozen=True, slots=True)
class Use:
    """One step, and what its worker was there for; `place` is its round and its index, those of
    the outer step where it is one of a nested run."""

    worker: str
    role: Role
    subtask: str
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Digest:
    """What figures need of a run. `providers` are those of its pool's workers."""

    run_id: str
    calls: tuple[Call, ...]
    uses: tuple[Use, ...]
    providers: Mapping[str, str]

    @property
    def is_cost_known(self) -> bool:
        """Whether what the whole run cost is known."""
        return all(call.cost_usd is not None for call in self.calls)


@dataclass(frozen=True, slots=True)
class Window:
    """Runs of some days, the newest first. `is_whole` is False where there were more of them than
    are looked at; `left_out` counts those that could not be read."""

    digests: tuple[Digest, ...]
    is_whole: bool
    left_out: int


class Digests:
    """The digests of runs, made when they are first asked for. It belongs to one event loop."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[RunMark, Digest] = OrderedDict()

    async def between(
        self, accounts: Accounts, *, since: str, until: str, owner: str | None, limit: int
    ) -> Window:
        """The newest runs of these days, at most `limit` of them, that owner's alone if any."""
        marks = await accounts.marks(since=since, until=until, limit=limit + 1, owner=owner)
        wanted = marks[:limit]
        found = {mark: self._kept[mark] for mark in wanted if mark in self._kept}
        missing = [mark for mark in wanted if mark not in found]
        for start in range(0, len(missing), LOADED_AT_ONCE):
            some = {mark.id: mark for mark in missing[start : start + LOADED_AT_ONCE]}
            for run in await accounts.load(list(some)):
                try:
                    found[some[run.id]] = digested(run)
                except UnreadableRun:  # one that is damaged must not cost the others
                    continue
        self._keep(found)
        digests = tuple(found[mark] for mark in wanted if mark in found)
        return Window(digests, len(marks) <= limit, len(wanted) - len(digests))

    def _keep(self, found: Mapping[RunMark, Digest]) -> None:
        for mark, digest in found.items():
            self._kept[mark] = digest
            self._kept.move_to_end(mark)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def digested(run: Run) -> Digest:
    """The digest of a run, its nested runs included. Raises `UnreadableRun` where its parts do not
    fit together."""
    return Digest(
        run.id,
        tuple(_calls(run)),
        tuple(_uses(run, None)),
        dict(_providers(run)),
    )


def _calls(run: Run) -> Iterator[Call]:
    began = _moment(run.created_at)
    verified = [attempt for check in run.checks for attempt in check.attempts]
    yield from (_call(attempt, began, is_planning=False) for attempt in verified)
    for round_ in run.rounds:
        planning = filter(_was_made, round_.planning)
        yield from (_call(attempt, began, is_planning=True) for attempt in planning)
        for step in round_.steps:
            verified = [attempt for check in step.checks for attempt in check.attempts]
            for attempt in filter(_was_made, (*step.attempts, *verified)):
                yield _call(attempt, began, is_planning=False)
            for nested in step.nested:
                yield from _calls(nested)


def _was_made(attempt: Attempt) -> bool:
    """A call that an open breaker refused is none."""
    return attempt.was_made


def _moment(created_at: str) -> float:
    try:
        return datetime.fromisoformat(created_at).timestamp()
    except (ValueError, OverflowError) as error:
        raise UnreadableRun(f"this run cannot be read: {created_at!r} is no moment") from error


def _call(attempt: Attempt, began: float, *, is_planning: bool) -> Call:
    ended = began + attempt.finished_ms / 1000
    if not EARLIEST <= ended <= LATEST:
        raise UnreadableRun(
            f"this run cannot be read: a call that ended {attempt.finished_ms:g} ms into it is on "
            f"no calendar"
        )
    return Call(
        attempt.worker,
        ended,
        max(0.0, attempt.finished_ms - attempt.started_ms) / 1000,
        None if attempt.error is None else attempt.error[:LONGEST_ERROR],
        attempt.cost_usd,
        attempt.usage.total_tokens,
        is_planning,
    )


def _uses(run: Run, place: tuple[int, int] | None) -> Iterator[Use]:
    """Only steps that were carried out: what a plan only wished for is no use of anybody."""
    planned = iter(roles(run))
    role_of = {
        (round_.index, index): next(planned)
        for round_ in run.rounds
        if round_.workflow is not None
        for index in range(len(round_.workflow))
    }
    for step in run.steps:
        if step.status == "skipped":
            continue
        own = (step.round, step.index)
        if own not in role_of:
            raise UnreadableRun(
                f"this run cannot be read: step {step.index} of round {step.round} is in no plan"
            )
        yield Use(step.worker, role_of[own], step.subtask[:LONGEST_SUBTASK], place or own)
        for nested in step.nested:
            yield from _uses(nested, place or own)


def _providers(run: Run) -> Iterator[tuple[str, str]]:
    yield from ((worker.name, worker.provider) for worker in run.pool)
    for step in run.steps:
        for nested in step.nested:
            yield from _providers(nested)
