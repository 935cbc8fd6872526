"""Cross-validation of strategies that learn.

    found = await cross_validate(setup, cases, ["constant", "routerdc"])
    print(found.table())

For each fold a strategy is fitted to all other folds and evaluated on it. This is for suites
without a training split, or too small to give one up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import UsageError
from podium.evals.comparison import BEST_SINGLE, ReferenceRows, find_references
from podium.evals.evaluation import (
    BEST_OF_SEVERAL,
    Evaluation,
    ProgressCallback,
    ignore_progress,
)
from podium.evals.results import StrategyRow
from podium.evals.sample import Case, Sample
from podium.evals.setup import EvalSetup
from podium.evals.statistics import IntervalEstimate, PairedDifference
from podium.evals.strategies.fit import (
    SingleWorkerResults,
    check_learnable,
    fit,
    measure_single_workers,
)
from podium.evals.strategies.learned import LEARNED, MASROUTER, LearnedStrategy, write_learned
from podium.evals.text_table import UNKNOWN, markdown
from podium.tasks.suites import seeded_rank

if TYPE_CHECKING:  # needs numpy
    from podium.evals.strategies.routing_curves import FoldScores, RoutingCurves

DEFAULT_FOLDS: Final = 5
NOTE: Final = "each of {count} folds by what was learned on the others"
COLUMNS: Final = ("strategy", "right, %", "95 % interval", "vs best single", "p")


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The rows of the strategies, the reference rows, and the routing curves if there are any."""

    rows: tuple[StrategyRow, ...]
    references: ReferenceRows
    count: int
    curves: RoutingCurves | None = None

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "n": len(self.rows[0].outcomes),
            "folds": self.count,
            "rows": [self.references.document(row) for row in self._all_rows],
            **({} if self.curves is None else self.curves.document()),
        }

    def table(self) -> str:
        """Return the strategies between the best single worker and the best worker per task."""
        return markdown(COLUMNS, [self._cells(row) for row in self._all_rows])

    def tables(self) -> list[str]:
        """Return the table of strategies and those of the routing curves."""
        return [self.table(), *([] if self.curves is None else self.curves.tables())]

    def notes(self) -> list[str]:
        """Return the notes on rows, and their errors."""
        noted = [f"{row.strategy}: {row.note}" for row in self._all_rows if row.note]
        return [*noted, *(_error_note(row) for row in self._all_rows if row.errors)]

    @property
    def _all_rows(self) -> list[StrategyRow]:
        rows = (self.references.best_single, *self.rows, self.references.best_per_task)
        return [row for row in rows if row is not None]

    def _cells(self, row: StrategyRow) -> tuple[str, ...]:
        lead = self.references.lead(row)
        return (
            row.strategy,
            f"{100 * row.accuracy.value:.1f}",
            _interval(row.accuracy),
            _lead_text(lead),
            UNKNOWN if lead is None else f"{lead.p_value:.2g}",
        )


async def cross_validate(
    setup: EvalSetup,
    cases: Sequence[Case],
    names: Sequence[str],
    *,
    count: int = DEFAULT_FOLDS,
    seed: int = 0,
    concurrency: int = 8,
    repeats: int = 1,
    encoder: str | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> CrossValidation:
    """Evaluate strategies in folds; one that does not learn is evaluated on all tasks."""
    if not 2 <= count <= len(cases):
        raise UsageError(
            f"expected between 2 folds and one for each of the {len(cases)} tasks, not {count}"
        )
    if not names:
        raise UsageError(f"no strategy given; name some of {', '.join(LEARNED)}")
    evaluation = Evaluation(
        setup, cases, seed=seed, concurrency=concurrency, repeats=repeats, on_progress=on_progress
    )
    for name in names:
        if name in LEARNED:
            check_learnable(name, setup)
        else:
            evaluation.check(name)
    alone = await measure_single_workers(
        setup, cases, seed=seed, concurrency=concurrency, repeats=repeats, on_progress=on_progress
    )
    folds = _Folds(setup, cases, alone, count, seed, concurrency, repeats, encoder, on_progress)
    rows = [await (folds.row(name) if name in LEARNED else evaluation.row(name)) for name in names]
    from podium.evals.strategies.routing_curves import compute_curves

    references = find_references((*alone.rows, _best_single(alone.rows)))
    return CrossValidation(
        tuple(rows), references, count, compute_curves(alone.outcomes, folds.scores)
    )


@dataclass(frozen=True, slots=True)
class _Folds:
    """The parameters that all strategies share, and the scores of held-out folds."""

    setup: EvalSetup
    cases: Sequence[Case]
    alone: SingleWorkerResults
    count: int
    seed: int
    concurrency: int
    repeats: int
    encoder: str | None
    on_progress: ProgressCallback
    scores: dict[str, list[FoldScores]] = field(default_factory=dict)

    async def row(self, name: str) -> StrategyRow:
        """Evaluate the strategy on every task, fitted anew for each fold."""
        found: list[Sample] = []
        with TemporaryDirectory(prefix="podium-folds-") as directory:
            for number, fold in enumerate(deal_folds(self.cases, self.count, self.seed), start=1):
                path = Path(directory) / f"{name}-{number}.json"
                held_out = set(fold)
                others = [n for n in range(len(self.cases)) if n not in held_out]
                learned = await self._fit(name, others)
                self._score(learned, fold)
                write_learned(path, learned)
                found += await self._evaluate(name, path, number, fold)
        order = {case.task.id: index for index, case in enumerate(self.cases)}
        found.sort(key=lambda sample: (sample.repeat, order[sample.task]))
        return StrategyRow(name, tuple(found), NOTE.format(count=self.count))

    def _score(self, learned: LearnedStrategy, fold: Sequence[int]) -> None:
        """Keep a router's scores of the fold that it did not learn from."""
        from podium.evals.strategies.routers import Planner
        from podium.evals.strategies.routing_curves import score_fold

        if not isinstance(learned.model, Planner):
            scores = score_fold(learned.model, self.alone.outcomes, fold)
            self.scores.setdefault(learned.name, []).append(scores)

    async def _fit(self, name: str, indices: Sequence[int]) -> LearnedStrategy:
        from podium.evals.strategies.routers import encoder_factory, router_class

        if name == MASROUTER:
            return await fit(
                name,
                self.setup,
                [self.cases[index] for index in indices],
                seed=self.seed,
                concurrency=self.concurrency,
                encoder=self.encoder,
            )
        outcomes = self.alone.outcomes.of(indices)
        router = router_class(name).fit(outcomes, encoder_factory(self.encoder), self.seed)
        return LearnedStrategy(name, "", router)

    async def _evaluate(
        self, name: str, path: Path, number: int, fold: Sequence[int]
    ) -> tuple[Sample, ...]:
        def on_progress(strategy: str, done: int, total: int) -> None:
            self.on_progress(f"{name}, fold {number} of {self.count}", done, total)

        evaluation = Evaluation(
            self.setup,
            [self.cases[index] for index in fold],
            seed=self.seed,
            concurrency=self.concurrency,
            repeats=self.repeats,
            on_progress=on_progress,
        )
        return (await evaluation.row(f"{name}:{path}")).samples


def deal_folds(cases: Sequence[Case], count: int, seed: int) -> list[list[int]]:
    """Deal the indices of the cases into folds, in an order that the seed decides."""
    order = sorted(range(len(cases)), key=lambda n: seeded_rank(cases[n].task.id, seed))
    return [sorted(order[first::count]) for first in range(count)]


def _best_single(rows: Sequence[StrategyRow]) -> StrategyRow:
    best = max(rows, key=lambda row: row.accuracy.value)
    note = BEST_OF_SEVERAL.format(of=best.strategy, count=len(rows))
    return StrategyRow(BEST_SINGLE, best.samples, note)


def _error_note(row: StrategyRow) -> str:
    first = next(sample.error for sample in row.samples if sample.error is not None)
    return f"{row.strategy}: {row.errors} samples have errors, first: {first}"


def _interval(share: IntervalEstimate) -> str:
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def _lead_text(lead: PairedDifference | None) -> str:
    if lead is None:
        return UNKNOWN
    value, low, high = (100 * part for part in (lead.share.value, lead.share.low, lead.share.high))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
