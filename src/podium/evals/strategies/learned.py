"""What was learned, written down and read back as a strategy.

    learned = read_learned(Path("fitted/routerdc.json"))
    run = await learned.strategy(case, stage)

The file is versioned JSON: the strategy's name, the suite and the workers that it was fitted to,
its numbers, and the fingerprints of the questions that it learned from. Learning itself is
`podium.evals.strategies.fit`. What `podium train router` wrote is read too; it does not say which
questions it has met.

A name may end in a position of the quality bias, which Podium's own router has: `router:FILE@0.5`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.files import read_json, write_whole, writing
from podium.conductors import PlanningContext, RouterConductor
from podium.core.errors import ConfigError, UsageError
from podium.core.run import Run
from podium.evals.context import EvalContext, Strategy
from podium.evals.sample import Case
from podium.evals.strategies.conducting import carried_out, conducted
from podium.tasks.sources import optional

if TYPE_CHECKING:  # needs numpy, which only those have who fit
    from podium.evals.strategies.routers import MasRouter, Router

LEARNED: Final = (
    "constant",
    "neighbours",
    "router",
    "routerdc",
    "smoothie",
    "smoothie-local",
    "masrouter",
)
"""Strategies that have to be fitted first; each is named with its file, as in `routerdc:FILE`."""

EVOLVED: Final = "evolved"
"""A coordinator that was trained, which is named with its directory."""

MASROUTER: Final = "masrouter"
ROUTER: Final = "router"
FORMAT: Final = "podium-fitted"
VERSION: Final = 1
MET: Final = "it learned from {met} of these {count} tasks: an optimistic figure"


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A strategy that was fitted: its name, the suite that it learned from, what it knows, and
    the fingerprints of the questions that it learned from."""

    name: str
    suite: str
    model: Router | MasRouter
    questions: frozenset[str] = frozenset()

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it learned about."""
        return self.model.workers

    @property
    def strategy(self) -> Strategy:
        """A way to answer: by the worker that is chosen, or by the plan."""
        from podium.evals.strategies.routers import MasRouter, chosen

        model = self.model
        if isinstance(model, MasRouter):
            cascade = model

            async def answer(case: Case, stage: EvalContext) -> Run:
                plan = cascade.plan(case.task.question, case.pool)
                return await carried_out(self.name, plan, case, stage)

            return answer

        router = model

        def choose(context: PlanningContext) -> str:
            return chosen(router, context.question, context.pool.names)

        return conducted(RouterConductor(choose, name=self.name), rounds=1)

    def at(self, quality_bias: float) -> Strategy:
        """A way to answer at that position of the quality bias, which only Podium's own router
        has."""
        from podium.evals.strategies.routers import HeadRouter

        router = self.model
        assert isinstance(router, HeadRouter), "no other name has a quality bias"

        def choose(context: PlanningContext) -> str:
            return router.chosen_at(quality_bias, context.question, context.pool.names)

        return conducted(RouterConductor(choose, name=f"{self.name}@{quality_bias:g}"), rounds=1)

    def check(self, present: Collection[str]) -> None:
        """Refuse a pool of which it knows nobody."""
        if not set(present) & set(self.workers):
            raise UsageError(
                f"the strategy {self.name!r} was fitted to {', '.join(self.workers)}, and the "
                f"pool has {', '.join(present)}: none of them; fit it again on this pool"
            )

    def note(self, cases: Sequence[Case]) -> str:
        """What a reader must know who sees it measured by these cases: whether it has met them."""
        met = len(self.questions & fingerprints(cases))
        return MET.format(met=met, count=len(cases)) if met else ""

    def document(self) -> dict[str, Any]:
        """What is written down."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "strategy": self.name,
            "suite": self.suite,
            "workers": list(self.workers),
            "questions": sorted(self.questions),
            "learned": self.model.document(),
        }


class Named(NamedTuple):
    """What the name of a strategy says that was fitted: its file, and the position of the quality
    bias, where there is one in it."""

    path: Path
    quality_bias: float | None = None


def named(name: str) -> Named:
    """What that name says, `routerdc:FILE` or `router:FILE@BIAS`. A file whose own name has an @ is
    a file."""
    family, _, which = name.partition(":")
    file, at, told = which.rpartition("@")
    if family != ROUTER or not at or _is_file(Path(which)):
        return Named(Path(which))
    if not file:
        raise UsageError(
            f"the strategy {name!r} names a quality bias and no file; name what was fitted or "
            f"trained as "
            f"well, as in {ROUTER}:FILE@0.5"
        )
    try:
        quality_bias = float(told)
    except ValueError:
        quality_bias = math.nan
    if not 0 <= quality_bias <= 1:
        raise UsageError(
            f"the strategy {name!r} names the quality bias {told!r}: expected a number from 0 (the "
            f"cheapest worker) to 1 (the best), as in {ROUTER}:FILE@0.5"
        )
    return Named(Path(file), quality_bias)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none's."""
    try:
        return path.is_file()
    except OSError:
        return False


def write_learned(path: Path, learned: Learned) -> None:
    """Write what was learned, all of it or none of it."""
    with writing(path.parent, 0):
        write_whole(path, json.dumps(learned.document()) + "\n")


def read_learned(path: Path) -> Learned:
    """What was written; an error says what is wrong with the file."""
    needs_numpy(f"reading {path.name}")
    from podium.conductors.routing.arrays import AGAIN
    from podium.conductors.routing.router import FORMAT as TRAINED
    from podium.evals.strategies.routers import ROUTERS, MasRouter

    document = read_json(path, "make it by `podium eval fit`")
    if isinstance(document, dict) and document.get("format") == TRAINED:
        document = _as_fitted(document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: this is nothing that `podium eval fit` or `podium train router` wrote"
        )
    if document.get("version") != VERSION:
        raise ConfigError(
            f"{path}: version {document.get('version')!r} cannot be read, only {VERSION}; fit it "
            f"again with this Podium"
        )
    name = document.get("strategy")
    kind = MasRouter if name == MASROUTER else ROUTERS.get(str(name))
    if kind is None:
        raise ConfigError(f"{path}: it is of the strategy {name!r}, which nobody here knows")
    try:
        workers = _names(document, "workers")
        if not workers or len(set(workers)) < len(workers):
            raise ConfigError("it has no workers, or two of the same name; " + AGAIN)
        learned = document.get("learned")
        model = kind.read(workers, learned if isinstance(learned, Mapping) else {})
        met = frozenset(_names(document, "questions"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return Learned(str(name), str(document.get("suite", "")), model, met)


def _names(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The texts in the list of that key, where there is one."""
    from podium.conductors.routing.arrays import AGAIN

    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"expected a list of texts in {key!r}; {AGAIN}")
    return tuple(found)


def _as_fitted(router: Mapping[str, Any]) -> dict[str, Any]:
    """What `podium train router` wrote, as `podium eval fit` would have written it."""
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


def fingerprints(cases: Iterable[Case]) -> frozenset[str]:
    """By what the questions of these cases are known again."""
    return frozenset(
        hashlib.blake2b(case.task.question.encode("utf-8", "replace"), digest_size=8).hexdigest()
        for case in cases
    )


def needs_numpy(purpose: str) -> None:
    """Say what to install where numpy is missing."""
    optional("numpy", purpose)
