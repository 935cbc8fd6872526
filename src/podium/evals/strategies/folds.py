"""Cross-validation: strategies that learn, measured on tasks that they did not learn from.

    folded = await cross_validated(ensemble, cases, ["constant", "routerdc"])
    print(folded.table())

The tasks are dealt into folds. For each fold a strategy is fitted to all others and measured on
it, so that every task is measured once, by a strategy that has never seen it. For suites without
a training split, and for those that are too small to give one up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import UsageError
from podium.evals.ensemble import Ensemble
from podium.evals.evaluation import OPTIMISTIC, Evaluation, Watch, unwatched
from podium.evals.sample import Case, Sample
from podium.evals.strategies.fit import Alone, check_learnable, fit, tried_alone
from podium.evals.strategies.learned import LEARNED, MASROUTER, Learned, write_learned
from podium.evals.tables.comparison import BEST_SINGLE, Yardsticks, yardsticks
from podium.evals.tables.row import Row
from podium.evals.tables.statistics import Difference, Share
from podium.evals.tables.text_table import UNKNOWN, markdown
from podium.tasks.mix import rank

if TYPE_CHECKING:  # needs numpy, which only those have who fit
    from podium.evals.strategies.curves import Curves, HeldOut

USUAL_FOLDS: Final = 5
NOTE: Final = "each of {count} folds by what was learned on the others"
COLUMNS: Final = ("strategy", "right, %", "95 % interval", "against the best single", "p")


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows of the strategies, what they are held against, and in how many folds; `curves` are
    what routers do at every expense."""

    rows: tuple[Row, ...]
    measures: Yardsticks
    count: int
    curves: Curves | None = None

    def document(self) -> dict[str, Any]:
        """Everything as JSON, the best single worker and the best for each task included."""
        return {
            "n": len(self.rows[0].outcomes),
            "folds": self.count,
            "rows": [self.measures.document(row) for row in self._shown],
            **({} if self.curves is None else self.curves.document()),
        }

    def table(self) -> str:
        """The strategies between the best single worker and the best one for each task."""
        return markdown(COLUMNS, [self._cells(row) for row in self._shown])

    def tables(self) -> list[str]:
        """That, and what routers do at every expense."""
        return [self.table(), *([] if self.curves is None else self.curves.tables())]

    def notes(self) -> list[str]:
        """What a reader must know of each row, a line each."""
        noted = [f"{row.strategy}: {row.note}" for row in self._shown if row.note]
        return [*noted, *(_failed(row) for row in self._shown if row.faults)]

    @property
    def _shown(self) -> list[Row]:
        measures = (self.measures.best_single, *self.rows, self.measures.ceiling)
        return [row for row in measures if row is not None]

    def _cells(self, row: Row) -> tuple[str, ...]:
        lead = self.measures.lead(row)
        return (
            row.strategy,
            f"{100 * row.accuracy.value:.1f}",
            _interval(row.accuracy),
            _told(lead),
            UNKNOWN if lead is None else f"{lead.p_value:.2g}",
        )


async def cross_validated(
    ensemble: Ensemble,
    cases: Sequence[Case],
    names: Sequence[str],
    *,
    count: int = USUAL_FOLDS,
    seed: int = 0,
    concurrency: int = 8,
    repeats: int = 1,
    encoder: str | None = None,
    watch: Watch = unwatched,
) -> Folded:
    """Measure strategies in folds; one that learns nothing is measured on all tasks as it is."""
    if not 2 <= count <= len(cases):
        raise UsageError(
            f"expected between 2 folds and one for each of the {len(cases)} tasks, not {count}"
        )
    if not names:
        raise UsageError(f"no strategy is named; name some of {', '.join(LEARNED)}")
    evaluation = Evaluation(
        ensemble, cases, seed=seed, concurrency=concurrency, repeats=repeats, watch=watch
    )
    for name in names:
        if name in LEARNED:
            check_learnable(name, ensemble)
        else:
            evaluation.check(name)
    alone = await tried_alone(
        ensemble, cases, seed=seed, concurrency=concurrency, repeats=repeats, watch=watch
    )
    folding = _Folding(ensemble, cases, alone, count, seed, concurrency, repeats, encoder, watch)
    rows = [
        await (folding.row(name) if name in LEARNED else evaluation.row(name)) for name in names
    ]
    from podium.evals.strategies.curves import curves

    measures = yardsticks((*alone.rows, _best_single(alone.rows)))
    return Folded(tuple(rows), measures, count, curves(alone.outcomes, folding.held))


@dataclass(frozen=True, slots=True)
class _Folding:
    """What does not change from strategy to strategy."""

    ensemble: Ensemble
    cases: Sequence[Case]
    alone: Alone
    count: int
    seed: int
    concurrency: int
    repeats: int
    encoder: str | None
    watch: Watch
    held: dict[str, list[HeldOut]] = field(default_factory=dict)

    async def row(self, name: str) -> Row:
        """The strategy on every task, fitted anew for each fold."""
        found: list[Sample] = []
        with TemporaryDirectory(prefix="podium-folds-") as directory:
            for number, places in enumerate(dealt(self.cases, self.count, self.seed), start=1):
                path = Path(directory) / f"{name}-{number}.json"
                held = set(places)
                others = [place for place in range(len(self.cases)) if place not in held]
                learned = await self._learned(name, others)
                self._hold(learned, places)
                write_learned(path, learned)
                found += await self._measured(name, path, number, places)
        order = {case.task.id: place for place, case in enumerate(self.cases)}
        found.sort(key=lambda sample: (sample.repeat, order[sample.task]))
        return Row(name, tuple(found), NOTE.format(count=self.count))

    def _hold(self, learned: Learned, places: Sequence[int]) -> None:
        """Keep what a router would do with the fold that it did not learn from."""
        from podium.evals.strategies.curves import held_out
        from podium.evals.strategies.routers import MasRouter

        if not isinstance(learned.model, MasRouter):
            fold = held_out(learned.model, self.alone.outcomes, places)
            self.held.setdefault(learned.name, []).append(fold)

    async def _learned(self, name: str, places: Sequence[int]) -> Learned:
        from podium.evals.strategies.routers import ROUTERS, encoder_maker

        if name == MASROUTER:
            return await fit(
                name,
                self.ensemble,
                [self.cases[place] for place in places],
                seed=self.seed,
                concurrency=self.concurrency,
                encoder=self.encoder,
            )
        maker = encoder_maker(self.encoder)
        return Learned(
            name, "", ROUTERS[name].fitted(self.alone.outcomes.of(places), maker, self.seed)
        )

    async def _measured(
        self, name: str, path: Path, number: int, places: Sequence[int]
    ) -> tuple[Sample, ...]:
        def watch(strategy: str, done: int, total: int) -> None:
            self.watch(f"{name}, fold {number} of {self.count}", done, total)

        evaluation = Evaluation(
            self.ensemble,
            [self.cases[place] for place in places],
            seed=self.seed,
            concurrency=self.concurrency,
            repeats=self.repeats,
            watch=watch,
        )
        return (await evaluation.row(f"{name}:{path}")).samples


def dealt(cases: Sequence[Case], count: int, seed: int) -> list[list[int]]:
    """The places of the cases, dealt into as many folds in the order that the seed stands for."""
    order = sorted(range(len(cases)), key=lambda place: rank(cases[place].task.id, seed))
    return [sorted(order[first::count]) for first in range(count)]


def _best_single(rows: Sequence[Row]) -> Row:
    best = max(rows, key=lambda row: row.accuracy.value)
    note = OPTIMISTIC.format(of=best.strategy, count=len(rows))
    return Row(BEST_SINGLE, best.samples, note)


def _failed(row: Row) -> str:
    first = next(sample.fault for sample in row.samples if sample.fault is not None)
    return f"{row.strategy}: something failed in {row.faults} samples, first with: {first}"


def _interval(share: Share) -> str:
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def _told(lead: Difference | None) -> str:
    if lead is None:
        return UNKNOWN
    value, low, high = (100 * part for part in (lead.share.value, lead.share.low, lead.share.high))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
