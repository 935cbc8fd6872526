"""Cross-validation of strategies that learn.

    found = await cross_validate(setup, cases, ["constant", "routerdc"])
    print(found.table())

For each fold a strategy is fitted to all other folds and evaluated on it. This is for suites
without a training split, or too small to give one up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from podium.evals.strategies.fit import check_learnable, fit, measure_single_workers
from podium.evals.strategies.learned import LEARNED, MASROUTER, LearnedStrategy, write_learned
from podium.evals.text_table import UNKNOWN, markdown
from podium.tasks.suites import seeded_rank

if TYPE_CHECKING:  # needs numpy
    from podium.evals.strategies.routing_curves import RoutingCurves

DEFAULT_FOLD_COUNT: Final = 5
NOTE: Final = "each of {count} folds by what was learned on the others"
COLUMNS: Final = ("strategy", "right, %", "95 % interval", "vs best single", "p")


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The rows of the strategies, the reference rows, and the routing curves if there are any."""

    rows: tuple[StrategyRow, ...]
    references: ReferenceRows
    fold_count: int
    curves: RoutingCurves | None = None

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "n": len(self.rows[0].outcomes),
            "fold_count": self.fold_count,
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
    fold_count: int = DEFAULT_FOLD_COUNT,
    seed: int = 0,
    concurrency: int = 8,
    repeats: int = 1,
    encoder: str | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> CrossValidation:
    """Evaluate strategies in folds; one that does not learn is evaluated on all tasks."""
    if not 2 <= fold_count <= len(cases):
        raise UsageError(
            f"expected between 2 folds and one for each of the {len(cases)} tasks, not {fold_count}"
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
    from podium.evals.strategies.routers import Planner, encoder_factory, router_class
    from podium.evals.strategies.routing_curves import FoldScores, compute_curves, score_fold

    scores: dict[str, list[FoldScores]] = {}

    async def fit_others(name: str, fold: Sequence[int]) -> LearnedStrategy:
        held_out = set(fold)
        others = [index for index in range(len(cases)) if index not in held_out]
        if name == MASROUTER:
            training = [cases[index] for index in others]
            return await fit(
                name, setup, training, seed=seed, concurrency=concurrency, encoder=encoder
            )
        outcomes = alone.outcomes.of(others)
        return LearnedStrategy(
            name, "", router_class(name).fit(outcomes, encoder_factory(encoder), seed)
        )

    async def evaluate(
        name: str, number: int, fold: Sequence[int], directory: str
    ) -> Sequence[Sample]:
        learned = await fit_others(name, fold)
        if not isinstance(learned.model, Planner):
            fold_scores = score_fold(learned.model, alone.outcomes, fold)
            scores.setdefault(name, []).append(fold_scores)
        path = Path(directory) / f"{name}-{number}.json"
        write_learned(path, learned)
        held_out = Evaluation(
            setup,
            [cases[index] for index in fold],
            seed=seed,
            concurrency=concurrency,
            repeats=repeats,
            on_progress=lambda _, done, total: on_progress(
                f"{name}, fold {number} of {fold_count}", done, total
            ),
        )
        return (await held_out.row(f"{name}:{path}")).samples

    async def evaluate_folds(name: str) -> StrategyRow:
        samples: list[Sample] = []
        with TemporaryDirectory(prefix="podium-folds-") as directory:
            for number, fold in enumerate(deal_folds(cases, fold_count, seed), start=1):
                samples += await evaluate(name, number, fold, directory)
        order = {case.task.id: index for index, case in enumerate(cases)}
        samples.sort(key=lambda sample: (sample.repeat, order[sample.task]))
        return StrategyRow(name, tuple(samples), NOTE.format(count=fold_count))

    rows = [
        await (evaluate_folds(name) if name in LEARNED else evaluation.row(name)) for name in names
    ]
    references = find_references((*alone.rows, _best_single(alone.rows)))
    return CrossValidation(
        tuple(rows), references, fold_count, compute_curves(alone.outcomes, scores)
    )


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
