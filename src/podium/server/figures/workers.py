"""What each worker did in a window of runs: how often it was called, how fast it was, what failed,
and what it was used for. Where there was nothing to measure, a figure is None and never zero."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from podium.core.roles import Role
from podium.server.figures.digest import Call, Digest, Use

EXAMPLES: Final = 3
"""How many steps are shown of what a worker is used for."""

Health = Literal["working", "failing", "unknown"]
"""By the latest call: it succeeded, it failed, or there was none."""


@dataclass(frozen=True, slots=True)
class Example:
    """A step, to look at."""

    run_id: str
    use: Use


@dataclass(frozen=True, slots=True)
class RoleFigures:
    """How many steps had a worker in that role, and the newest of them."""

    role: Role
    steps: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """What one worker did. `share` is of all calls in the window, `failures_in_a_row` those since
    its last success, and a cost is the sum over the calls of which it is known."""

    calls: int = 0
    failed: int = 0
    planning: int = 0
    share: float | None = None
    seconds: tuple[float, float] | None = None
    cost_usd: float | None = None
    unknown_cost: int = 0
    last_success: float | None = None
    last_failure: float | None = None
    last_error: str | None = None
    failures_in_a_row: int = 0
    roles: tuple[RoleFigures, ...] = ()

    @property
    def error_rate(self) -> float | None:
        """The share of its calls that failed."""
        return self.failed / self.calls if self.calls else None

    @property
    def health(self) -> Health:
        """How its latest call went."""
        if not self.calls:
            return "unknown"
        return "failing" if self.failures_in_a_row else "working"


NOTHING: Final = WorkerFigures()


def figures(digests: Iterable[Digest]) -> dict[str, WorkerFigures]:
    """The figures of every worker that had a call or a step, from digests, the newest first."""
    calls = defaultdict[str, list[Call]](list)
    uses = defaultdict[str, list[Example]](list)
    for digest in digests:
        for call in digest.calls:
            calls[call.worker].append(call)
        for use in digest.uses:
            uses[use.worker].append(Example(digest.run_id, use))
    total = sum(map(len, calls.values()))
    names = sorted(calls.keys() | uses.keys())
    return {name: _of_one(calls[name], uses[name], total) for name in names}


def _of_one(calls: Sequence[Call], uses: Sequence[Example], total: int) -> WorkerFigures:
    in_order = sorted(calls, key=lambda call: call.at)
    done = [call for call in in_order if call.error is None]
    failed = [call for call in in_order if call.error is not None]
    last_success = done[-1].at if done else None
    since = -math.inf if last_success is None else last_success
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    return WorkerFigures(
        calls=len(calls),
        failed=len(failed),
        planning=sum(call.is_planning for call in calls),
        share=len(calls) / total if total else None,
        seconds=_spread([call.seconds for call in done]),
        cost_usd=sum(costs) if costs else None,
        unknown_cost=len(calls) - len(costs),
        last_success=last_success,
        last_failure=failed[-1].at if failed else None,
        last_error=failed[-1].error if failed else None,
        failures_in_a_row=sum(call.at > since for call in failed),
        roles=_roles(uses),
    )


def _roles(uses: Sequence[Example]) -> tuple[RoleFigures, ...]:
    """The most frequent role first."""
    by_role = defaultdict[Role, list[Example]](list)
    for example in uses:
        by_role[example.use.role].append(example)
    found = [RoleFigures(role, len(some), _examples(some)) for role, some in by_role.items()]
    return tuple(sorted(found, key=lambda figures: (-figures.steps, figures.role)))


def _examples(uses: Iterable[Example]) -> tuple[Example, ...]:
    """The newest that differ in what they say."""
    distinct: dict[str, Example] = {}
    for example in uses:
        distinct.setdefault(example.use.subtask, example)
        if len(distinct) == EXAMPLES:
            break
    return tuple(distinct.values())


def _spread(seconds: Sequence[float]) -> tuple[float, float] | None:
    """Within how long half, and 95 %, of the calls were done; None where there were none."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return _within(ordered, 0.5), _within(ordered, 0.95)


def _within(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
