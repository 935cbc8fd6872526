"""Statistics of each worker over recent runs: calls, latency, errors, cost and roles.

A finished run never changes, so its metrics are computed once and cached. A statistic without data
is None, never zero.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.core.errors import UnreadableRun
from podium.core.request import Usage
from podium.core.roles import Role, step_roles
from podium.core.run import Attempt, Run
from podium.store.base import RunRevision

if TYPE_CHECKING:
    from podium.store.sql.queries import RunStatistics

CACHE_SIZE: Final = 10_000
"""Runs in the cache; most take about a kilobyte."""

LOAD_BATCH: Final = 50
"""Runs per query, so that other tasks do not wait for long."""

MAX_SUBTASK_CHARS: Final = 300
MAX_ERROR_CHARS: Final = 500

EARLIEST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
LATEST: Final = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
"""The first and the last second of the calendar."""


class CallSummary(NamedTuple):
    """One call to one worker. `at` is when it ended, in seconds since 1970."""

    worker: str
    at: float
    seconds: float
    error: str | None
    cost_usd: float | None
    tokens: int | None
    is_planning: bool


class StepUse(NamedTuple):
    """A step of a run and its role; `position` is its round and index, those of the outer step in a
    nested run."""

    run_id: str
    worker: str
    role: Role
    subtask: str
    position: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The statistics of one run. `providers` maps its workers to their providers.
    `single_worker_usage` is what a single worker would read and write for the same answer: an
    estimate."""

    run_id: str
    calls: tuple[CallSummary, ...]
    steps: tuple[StepUse, ...]
    providers: Mapping[str, str]
    single_worker_usage: Usage | None = None

    @property
    def is_cost_known(self) -> bool:
        return all(call.cost_usd is not None for call in self.calls)


class RunMetricsWindow(NamedTuple):
    """Runs of some days, newest first. `is_complete` is False if there are more."""

    runs: tuple[RunMetrics, ...]
    is_complete: bool
    unreadable_runs: int


class RunMetricsCache:
    """Computes and caches the metrics of runs. Belongs to one event loop."""

    def __init__(self, most: int = CACHE_SIZE) -> None:
        self._most = most
        self._kept: OrderedDict[RunRevision, RunMetrics] = OrderedDict()

    async def load(
        self, statistics: RunStatistics, *, since: str, until: str, owner: str | None, limit: int
    ) -> RunMetricsWindow:
        """Return the newest runs of these days, at most `limit`; only those of `owner` if given."""
        marks = await statistics.list_revisions(
            since=since, until=until, limit=limit + 1, owner=owner
        )
        wanted = marks[:limit]
        found = {mark: self._kept[mark] for mark in wanted if mark in self._kept}
        missing = [mark for mark in wanted if mark not in found]
        for start in range(0, len(missing), LOAD_BATCH):
            some = {mark.id: mark for mark in missing[start : start + LOAD_BATCH]}
            for run in await statistics.load(list(some)):
                try:
                    found[some[run.id]] = measure_run(run)
                except UnreadableRun:  # a damaged run must not hide the others
                    continue
        self._keep(found)
        runs = tuple(found[mark] for mark in wanted if mark in found)
        return RunMetricsWindow(runs, len(marks) <= limit, len(wanted) - len(runs))

    def _keep(self, found: Mapping[RunRevision, RunMetrics]) -> None:
        for mark, metrics in found.items():
            self._kept[mark] = metrics
            self._kept.move_to_end(mark)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def measure_run(run: Run) -> RunMetrics:
    """Compute the metrics of a run and its nested runs; raise `UnreadableRun` if it is
    inconsistent."""
    steps = tuple(_executed_steps(run, run.id))
    return RunMetrics(
        run.id, tuple(_calls(run)), steps, dict(_providers(run)), _single_call_usage(run)
    )


def _single_call_usage(run: Run) -> Usage | None:
    """Return the input of the first call that answered a step, and the output of the answer."""
    answers = [step for step in run.steps if step.reply and step.reply == run.answer]
    read = [call for step in run.steps for call in step.attempts if call.error is None]
    written = [call for step in answers[-1:] for call in step.attempts if call.error is None]
    if not read or not written:
        return None
    return Usage(read[0].usage.input_tokens, written[-1].usage.output_tokens, 0, 0, 0)


def _calls(run: Run) -> Iterator[CallSummary]:
    """Yield the calls that were made, not those that an open circuit breaker refused."""
    began = _parse_timestamp(run.created_at)
    for attempt, is_planning in _attempts(run):
        if attempt.was_sent:
            yield _call(attempt, began, is_planning=is_planning)
    for step in run.steps:
        for nested in step.nested:
            yield from _calls(nested)


def _attempts(run: Run) -> Iterator[tuple[Attempt, bool]]:
    steps = (*run.steps, *run.cancelled_steps)
    checks = [*run.guardrail_checks, *(check for step in steps for check in step.guardrail_checks)]
    yield from ((attempt, False) for check in checks for attempt in check.attempts)
    yield from ((attempt, True) for round_ in run.rounds for attempt in round_.planning_attempts)
    yield from ((attempt, False) for step in steps for attempt in step.attempts)


def _parse_timestamp(created_at: str) -> float:
    try:
        return datetime.fromisoformat(created_at).timestamp()
    except (ValueError, OverflowError) as error:
        raise UnreadableRun(f"this run cannot be read: invalid timestamp {created_at!r}") from error


def _call(attempt: Attempt, began: float, *, is_planning: bool) -> CallSummary:
    ended = began + attempt.finished_ms / 1000
    if not EARLIEST <= ended <= LATEST:
        raise UnreadableRun(
            f"this run cannot be read: a call that ended {attempt.finished_ms:g} ms into it has an "
            f"invalid timestamp"
        )
    return CallSummary(
        attempt.worker,
        ended,
        max(0.0, attempt.finished_ms - attempt.started_ms) / 1000,
        None if attempt.error is None else attempt.error[:MAX_ERROR_CHARS],
        attempt.cost_usd,
        attempt.usage.total_tokens,
        is_planning,
    )


def _executed_steps(
    run: Run, run_id: str, position: tuple[int, int] | None = None
) -> Iterator[StepUse]:
    """Yield the steps that were executed, as steps of the outermost run."""
    planned = iter(step_roles(run))
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
        subtask = step.subtask[:MAX_SUBTASK_CHARS]
        yield StepUse(run_id, step.worker, role_of[own], subtask, position or own)
        for nested in step.nested:
            yield from _executed_steps(nested, run_id, position or own)


def _providers(run: Run) -> Iterator[tuple[str, str]]:
    yield from ((worker.name, worker.provider) for worker in run.pool)
    for step in run.steps:
        for nested in step.nested:
            yield from _providers(nested)


EXAMPLES: Final = 3
"""Steps shown for each role of a worker."""


def worker_stats(runs: Iterable[RunMetrics]) -> dict[str, dict[str, Any]]:
    """Return the statistics of every worker as JSON; `runs` are newest first.

    `share` is its share of all calls, `errors` counts failed calls by kind, then by day (UTC).
    """
    calls = defaultdict[str, list[CallSummary]](list)
    steps = defaultdict[str, list[StepUse]](list)
    for run in runs:
        for call in run.calls:
            calls[call.worker].append(call)
        for use in run.steps:
            steps[use.worker].append(use)
    total = sum(map(len, calls.values()))
    names = sorted(calls.keys() | steps.keys())
    return {name: _stats_of(calls[name], steps[name], total) for name in names}


def _stats_of(calls: Sequence[CallSummary], steps: Sequence[StepUse], total: int) -> dict[str, Any]:
    in_order = sorted(calls, key=lambda call: call.at)
    done = [call for call in in_order if call.error is None]
    failed = [call for call in in_order if call.error is not None]
    last_success = done[-1].at if done else None
    since = -math.inf if last_success is None else last_success
    in_a_row = sum(call.at > since for call in failed)
    state = "failing" if in_a_row else "working"
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    p50, p95 = _percentiles([call.seconds for call in done])
    return {
        "health": {
            "state": state if calls else "unknown",
            "last_success": format_timestamp(last_success),
            "last_failure": format_timestamp(failed[-1].at if failed else None),
            "last_error": failed[-1].error if failed else None,
            "failures_in_a_row": in_a_row,
        },
        "calls": len(calls),
        "failed": len(failed),
        "planning": sum(call.is_planning for call in calls),
        "share": len(calls) / total if total else None,
        "error_rate": len(failed) / len(calls) if calls else None,
        "errors": _errors(failed),
        "seconds": {"p50": p50, "p95": p95},
        "cost_usd": sum(costs) if costs else None,
        "unknown_cost_count": len(calls) - len(costs),
        "roles": _roles(steps),
    }


def format_timestamp(seconds: float | None) -> str | None:
    """Format a time as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


_KINDS: Final = (
    ("timeout", r"no reply within|did not answer in time|timed out|HTTP (408|504)"),
    ("rate limit", r"HTTP 429|rate limit|too many requests|quota"),
    ("authentication", r"HTTP 40[13]|API key|unauthori[sz]ed|credentials"),
    ("unavailable", r"HTTP 5\d\d|cannot be reached|lost the connection|overloaded|unavailable"),
    ("refused", r"HTTP 4\d\d|too long|context window|cannot be called"),
    ("bad reply", r"invalid reply|not UTF-8|empty reply|sent more than|does not speak HTTP"),
    ("crash", r" raised |cancelled its own"),
)


@lru_cache(maxsize=1024)
def error_kind(message: str) -> str:
    """Name the kind of a failed call by its message; calls on record have nothing else."""
    found = (kind for kind, words in _KINDS if re.search(words, message, re.IGNORECASE))
    return next(found, "other")


def _errors(failed: Sequence[CallSummary]) -> dict[str, dict[str, int]]:
    kinds: dict[str, dict[str, int]] = {}
    for call in failed:
        days = kinds.setdefault(error_kind(call.error or ""), {})
        day = datetime.fromtimestamp(call.at, UTC).date().isoformat()
        days[day] = days.get(day, 0) + 1
    return kinds


def _roles(steps: Sequence[StepUse]) -> list[dict[str, Any]]:
    """List the roles, most frequent first, with the newest steps of different subtasks."""
    by_role = defaultdict[Role, list[StepUse]](list)
    for use in steps:
        by_role[use.role].append(use)
    found = []
    for role, steps_of_role in sorted(by_role.items(), key=lambda item: (-len(item[1]), item[0])):
        distinct = {use.subtask: use for use in reversed(steps_of_role)}  # the newest come first
        newest = [use for use in steps_of_role if distinct[use.subtask] is use][:EXAMPLES]
        examples = [
            {"run_id": use.run_id, "round": at[0], "step": at[1], "subtask": use.subtask}
            for use in newest
            for at in [use.position]
        ]
        found.append({"role": role.value, "steps": len(steps_of_role), "examples": examples})
    return found


def _percentiles(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    if not seconds:
        return None, None
    ordered = sorted(seconds)
    p50, p95 = (max(0, math.ceil(share * len(ordered)) - 1) for share in (0.5, 0.95))
    return ordered[p50], ordered[p95]


NOTHING: Final = _stats_of((), (), 0)
"""The statistics of a worker without calls."""
