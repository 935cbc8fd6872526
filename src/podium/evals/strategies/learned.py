"""Fitted strategies: their files, and how a file becomes a strategy.

    learned = read_learned(Path("fitted/routerdc.json"))
    run = await learned.strategy(case, context)

The file is versioned JSON: the strategy's name, the suite and workers that it was fitted to, its
parameters, and fingerprints of the questions that it learned from. Files of `podium train router`
are read too; they have no fingerprints. `router:FILE@0.5` sets the router's quality bias.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.files import explain_write_errors, read_json, write_atomically
from podium.conductors import PlanningContext, RouterConductor
from podium.core.errors import ConfigError, UsageError
from podium.core.run import Run
from podium.evals.context import EvalContext, Strategy
from podium.evals.sample import Case
from podium.evals.strategies.conducting import conductor_strategy, execute_plan
from podium.tasks.sources import import_optional

if TYPE_CHECKING:  # needs numpy
    from podium.evals.strategies.routers import Planner, RouterModel

LEARNED: Final = (
    *("constant", "neighbours", "router"),
    *("routerdc", "smoothie", "smoothie-local", "masrouter"),
)
"""Strategies that must be fitted first, named with their file as in `routerdc:FILE`."""

EVOLVED: Final = "evolved"
"""A trained coordinator, named with its directory."""

MASROUTER: Final = "masrouter"
ROUTER: Final = "router"
FORMAT: Final = "podium-fitted"
VERSION: Final = 1
SEEN: Final = "it learned from {seen} of these {count} tasks: an optimistic figure"


@dataclass(frozen=True, slots=True, eq=False)
class LearnedStrategy:
    """A fitted strategy: its model, its training suite, and fingerprints of the questions."""

    name: str
    suite: str
    model: RouterModel | Planner
    questions: frozenset[str] = frozenset()

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it was fitted to."""
        return self.model.workers

    @property
    def strategy(self) -> Strategy:
        """Answer by the chosen worker, or by the model's plan."""
        from podium.evals.strategies.routers import Planner, choose_worker

        model = self.model
        if isinstance(model, Planner):
            planner = model

            async def answer(case: Case, context: EvalContext) -> Run:
                plan = planner.plan(case.task.question, case.pool)
                return await execute_plan(self.name, plan, case, context)

            return answer
        router = model

        def choose(context: PlanningContext) -> str:
            return choose_worker(router, context.question, context.pool.names)

        return conductor_strategy(RouterConductor(choose, name=self.name), rounds=1)

    def with_quality_bias(self, quality_bias: float) -> Strategy:
        """Answer with that quality bias; only Podium's own router has one."""
        from podium.evals.strategies.routers import HeadRouter

        router = self.model
        assert isinstance(router, HeadRouter), "no other name has a quality bias"

        def choose(context: PlanningContext) -> str:
            return router.choose_with_bias(quality_bias, context.question, context.pool.names)

        name = f"{self.name}@{quality_bias:g}"
        return conductor_strategy(RouterConductor(choose, name=name), rounds=1)

    def check(self, present: Collection[str]) -> None:
        """Reject a pool without any worker that it was fitted to."""
        if not set(present) & set(self.workers):
            raise UsageError(
                f"the strategy {self.name!r} was fitted to {', '.join(self.workers)}, and the "
                f"pool has {', '.join(present)}: none of them; fit it again on this pool"
            )

    def note(self, cases: Sequence[Case]) -> str:
        """Return a warning if it learned from some of these cases."""
        seen = len(self.questions & question_fingerprints(cases))
        return SEEN.format(seen=seen, count=len(cases)) if seen else ""

    def document(self) -> dict[str, Any]:
        """Return the strategy as JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "strategy": self.name,
            "suite": self.suite,
            "workers": list(self.workers),
            "questions": sorted(self.questions),
            "learned": self.model.document(),
        }


class LearnedName(NamedTuple):
    """The parts of a fitted strategy's name: its file, and the quality bias if it has one."""

    path: Path
    quality_bias: float | None = None


def parse_learned_name(name: str) -> LearnedName:
    """Parse `routerdc:FILE` or `router:FILE@BIAS`; an existing file may have an @ in its name."""
    family, _, which = name.partition(":")
    file, at, bias = which.rpartition("@")
    if family != ROUTER or not at or _is_file(Path(which)):
        return LearnedName(Path(which))
    if not file:
        raise UsageError(
            f"the strategy {name!r} has a quality bias and no file; expected {ROUTER}:FILE@0.5"
        )
    try:
        quality_bias = float(bias)
    except ValueError:
        quality_bias = math.nan
    if not 0 <= quality_bias <= 1:
        raise UsageError(
            f"the strategy {name!r} has the quality bias {bias!r}: expected a number from 0 "
            f"(cheapest worker) to 1 (best worker), as in {ROUTER}:FILE@0.5"
        )
    return LearnedName(Path(file), quality_bias)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no file can have such a name
        return False


def write_learned(path: Path, learned: LearnedStrategy) -> None:
    """Write a fitted strategy atomically."""
    with explain_write_errors(path.parent, 0):
        write_atomically(path, json.dumps(learned.document()) + "\n")


def read_learned(path: Path) -> LearnedStrategy:
    """Read a fitted strategy."""
    require_numpy(f"reading {path.name}")
    from podium.conductors.routing.arrays import AGAIN
    from podium.conductors.routing.router import FORMAT as ROUTER_FORMAT
    from podium.evals.strategies.routers import read_model

    document = read_json(path, "make it by `podium eval fit`")
    if isinstance(document, dict) and document.get("format") == ROUTER_FORMAT:
        document = _from_trained_router(document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: expected a file written by `podium eval fit` or `podium train router`"
        )
    if document.get("version") != VERSION:
        raise ConfigError(
            f"{path}: version {document.get('version')!r} is not supported, only {VERSION}; fit "
            f"it again with this Podium"
        )
    name = str(document.get("strategy"))
    if name not in LEARNED:
        raise ConfigError(f"{path}: unknown strategy {name!r}; expected {', '.join(LEARNED)}")
    try:
        workers = _strings(document, "workers")
        if not workers or len(set(workers)) < len(workers):
            raise ConfigError(f"workers are missing or not distinct; {AGAIN}")
        learned = document.get("learned")
        model = read_model(name, workers, learned if isinstance(learned, Mapping) else {})
        seen = frozenset(_strings(document, "questions"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return LearnedStrategy(name, str(document.get("suite", "")), model, seen)


def _strings(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    from podium.conductors.routing.arrays import AGAIN

    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"expected a list of strings in {key!r}; {AGAIN}")
    return tuple(found)


def _from_trained_router(router: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a file of `podium train router` to the form of `podium eval fit`."""
    rows = router.get("workers")
    known = rows if isinstance(rows, list) else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "strategy": ROUTER,
        "suite": router.get("source", ""),
        "workers": [row["name"] for row in known if isinstance(row, Mapping) and "name" in row],
        "learned": router,
    }


def question_fingerprints(cases: Iterable[Case]) -> frozenset[str]:
    """Return a hash of each question."""
    return frozenset(
        hashlib.blake2b(case.task.question.encode("utf-8", "replace"), digest_size=8).hexdigest()
        for case in cases
    )


def require_numpy(purpose: str) -> None:
    """Raise a ConfigError that names the extra if numpy is missing."""
    import_optional("numpy", purpose)
