"""A report: what was wanted of an evaluation, and the row of every strategy.

wanted = Wanted(strategies=("conductor", "moa"), limit=60, seed=7)
report = await reported(ensemble, wanted)
print(report.document())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podium.config.problems import nearest
from podium.errors import UsageError
from podium.etudes import USUAL, EtudeShape
from podium.evals.case import Case, Variant, check_roles, etude_cases, suite_cases
from podium.evals.ensemble import Ensemble
from podium.evals.evaluation import Evaluation, Keep, Watch, unwatched
from podium.evals.row import Row
from podium.pool import Pool
from podium.tasks import suite
from podium.tasks.suites import ETUDES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which strategies, on how many tasks of which suite, and how many of them at once.

    `suite` and `data` are as `podium.tasks.suite` takes them; a variant is for the études alone.
    """

    suite: str = ETUDES
    data: Path | None = None
    strategies: Sequence[str] = ("conductor",)
    limit: int = 100
    seed: int = 0
    variant: Variant = field(default_factory=Variant)
    concurrency: int = 8

    def __post_init__(self) -> None:
        if not self.strategies:
            raise UsageError("no strategy is named; name one, such as conductor")
        if self.suite != ETUDES and self.variant != Variant():
            raise UsageError(
                f"shapes, orders of the pool, pools less one and flaky pools are for the suite "
                f"{ETUDES!r} alone, not for {self.suite!r}; leave them out"
            )

    def cases(self, pool: Pool) -> tuple[Case, ...]:
        """The tasks, over that pool."""
        if self.suite == ETUDES:
            return etude_cases(self.limit, self.seed, pool, self.variant)
        check_roles(pool, self.suite.partition(":")[0])
        tasks = suite(self.suite, data=self.data, limit=self.limit, seed=self.seed)
        return suite_cases(tasks, pool)


@dataclass(frozen=True, slots=True)
class Report:
    """The rows, in the order in which their strategies were named."""

    wanted: Wanted
    rows: tuple[Row, ...]

    def document(self) -> dict[str, Any]:
        """The report as JSON; a strategy is compared with the best single worker where that was
        measured too."""
        best = next((row for row in self.rows if row.strategy == "best-single"), None)
        return {
            "suite": self.wanted.suite,
            "n": len(self.rows[0].samples),
            "seed": self.wanted.seed,
            "variant": self.wanted.variant.document(),
            "rows": [row.document(best) for row in self.rows],
        }


async def reported(
    ensemble: Ensemble, wanted: Wanted, *, watch: Watch = unwatched, keep: Keep | None = None
) -> Report:
    """Measure what is wanted."""
    if wanted.variant.flaky:
        ensemble = ensemble.made_flaky(wanted.variant.flaky, wanted.seed)
    evaluation = Evaluation(
        ensemble,
        wanted.cases(ensemble.pool),
        seed=wanted.seed,
        concurrency=wanted.concurrency,
        watch=watch,
        keep=keep,
    )
    for name in wanted.strategies:
        evaluation.check(name)
    return Report(wanted, tuple([await evaluation.row(name) for name in wanted.strategies]))


def shapes_of(names: Sequence[str]) -> Mapping[EtudeShape, float]:
    """The shapes of these names, each as frequent as usual; one that is for tests alone as the
    most frequent of the others."""
    known = [shape.value for shape in EtudeShape]
    for name in names:
        if name not in known:
            raise UsageError(f"no étude has the shape {name!r}; {nearest(name, known)}")
    often = max(USUAL.values())
    wanted = [EtudeShape(name) for name in names]
    return MappingProxyType({shape: USUAL.get(shape, often) for shape in wanted})
