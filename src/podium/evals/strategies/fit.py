"""Fit strategies that learn, from the results of every worker on the same tasks.

    learned = await fit("routerdc", setup, cases, suite="gsm8k:train")
    write_learned(Path("fitted/routerdc.json"), learned)

Every worker answers every question in an ordinary evaluation, so cached replies are reused.
MASRouter tries plans instead and learns from their rewards.

    found = await cross_validate(setup, cases, ["constant", "routerdc"])

Cross-validation is for suites without a training split, or too small to give one up: for each fold
a strategy is fitted to all other folds and evaluated on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.lab import ETUDES, lab_extra
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.evals.comparison import BEST_SINGLE, ReferenceRows, find_references
from podium.evals.evaluation import (
    BEST_OF_SEVERAL,
    Evaluation,
    ProgressCallback,
    ignore_progress,
)
from podium.evals.report import LoadedCases
from podium.evals.results import UNKNOWN, IntervalEstimate, PairedDifference, StrategyRow, markdown
from podium.evals.sample import Case, Sample, make_cases
from podium.evals.setup import WORDLESS, EvalSetup, is_recorded, recorded_pool
from podium.evals.strategies.registry import (
    LEARNED,
    MASROUTER,
    LearnedStrategy,
    question_fingerprints,
    require_numpy,
    single_workers,
    write_learned,
)
from podium.tasks.benchmarks import BENCHMARKS, resolve_benchmark
from podium.tasks.suites import GYM, read_suite, seeded_rank

if TYPE_CHECKING:
    from podium.conductors.routing.arrays import Array
    from podium.evals.strategies.routers import WorkerOutcomes
    from podium.evals.strategies.routing_curves import RoutingCurves

TRAINING_SPLITS: Final = ("train", "val", "auxiliary_train")
"""Names of splits to learn from, the preferred one first."""

DEFAULT_QUESTIONS: Final = 500
"""As many as the Conductor's paper took for RouterDC; every worker answers each of them."""

GENERATED_SEED_OFFSET: Final = 1_000_000
"""Added to the seed of generated tasks, so that training and evaluation share none."""

OTHER_SUITES: Final = {"math500": "math:train"}
"""Suites whose training split is in another suite."""

READS_REPLIES: Final = ("smoothie", "smoothie-local")
"""Strategies that learn from the text of replies."""


async def fit(
    name: str,
    setup: EvalSetup,
    cases: Sequence[Case],
    *,
    suite: str = "",
    seed: int = 0,
    concurrency: int = 8,
    repeats: int = 1,
    encoder: str | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> LearnedStrategy:
    """Fit a strategy on these cases, which must not be those that it is evaluated on.

    With `repeats`, every worker answers so often and its accuracy is learned. `encoder` names a
    function that returns an encoder, as `module:function`.
    """
    check_learnable(name, setup)
    from podium.evals.strategies.routers import encoder_factory, router_class

    factory = encoder_factory(encoder)
    fingerprints = question_fingerprints(cases)
    if name == MASROUTER:
        with lab_extra():
            from podium_lab.routers.masrouter import fit_masrouter
        planner = await fit_masrouter(
            setup,
            cases,
            seed=seed,
            concurrency=concurrency,
            encoder=factory,
            on_progress=on_progress,
        )
        return LearnedStrategy(name, suite, planner, fingerprints)
    alone = await measure_single_workers(
        setup,
        cases,
        seed=seed,
        concurrency=concurrency,
        repeats=repeats,
        on_progress=on_progress,
    )
    for row in alone.rows:
        if row.errors == len(row.samples):
            raise UsageError(
                f"{row.strategy} failed on all of {len(row.samples)} samples, first with: "
                f"{row.samples[0].error}; repair that worker, or remove it from the pool"
            )
    router = router_class(name).fit(alone.outcomes, factory, seed)
    return LearnedStrategy(name, suite, router, fingerprints)


def check_learnable(name: str, setup: EvalSetup) -> None:
    """Reject a strategy that cannot be fitted, before any worker is called."""
    if name not in LEARNED:
        raise UsageError(f"the strategy {name!r} cannot be fitted; {suggest(name, LEARNED)}")
    wordless = [worker.name for worker in setup.pool if worker.provider == WORDLESS]
    if name in READS_REPLIES and wordless:
        raise UsageError(
            f"the strategy {name!r} compares the text of replies, and the replies of {wordless[0]} "
            f"were not recorded, only whether they were right; use another strategy"
        )
    require_numpy(f"fitting {name}")


def training_suite(name: str) -> str:
    """Return the training split of a suite; a split or a file is returned as it is."""
    kind, colon, _ = name.partition(":")
    if colon or Path(name).suffix:
        return name
    if kind == ETUDES or is_recorded(kind):
        return f"{kind}:train"
    benchmark = resolve_benchmark(kind)
    if benchmark in OTHER_SUITES:
        return OTHER_SUITES[benchmark]
    _, *others = BENCHMARKS[benchmark].splits if benchmark is not None else ("",)
    for split in TRAINING_SPLITS:
        if split in others:
            return f"{kind}:{split}"
    raise UsageError(
        f"the suite {name!r} has no training split; name a suite or a file to learn from, or use "
        f"cross-validation: podium eval cross-validate"
    )


def load_training_cases(
    name: str, pool: Pool, *, data: Path | None = None, limit: int | None = None, seed: int = 0
) -> LoadedCases:
    """Load the training cases of a suite: 500 by default, all of a recorded suite."""
    suite = training_suite(name)
    if is_recorded(suite):
        recorded = recorded_pool(suite, data=data, limit=limit, seed=seed)
        return LoadedCases(make_cases(recorded.tasks, pool))
    if suite.partition(":")[0] == GYM:
        seed += GENERATED_SEED_OFFSET
    loaded = read_suite(suite, data=data, limit=limit or DEFAULT_QUESTIONS, seed=seed)
    return LoadedCases(make_cases(loaded.tasks, pool), loaded.skipped)


class SingleWorkerResults(NamedTuple):
    """A row for each worker alone, and the outcomes that routers learn from."""

    rows: tuple[StrategyRow, ...]
    outcomes: WorkerOutcomes


async def measure_single_workers(
    setup: EvalSetup,
    cases: Sequence[Case],
    *,
    seed: int,
    concurrency: int,
    repeats: int = 1,
    on_progress: ProgressCallback = ignore_progress,
) -> SingleWorkerResults:
    """Run every worker alone on every case."""
    require_numpy("learning from outcomes")
    import numpy as np

    from podium.evals.strategies.routers import WorkerOutcomes

    replies = dict[tuple[str, str], str]()

    def keep_reply(strategy: str, sample: Sample, run: Run) -> None:
        if sample.repeat == 0:
            replies[strategy, sample.task] = run.answer or ""

    evaluation = Evaluation(
        setup,
        cases,
        seed=seed,
        concurrency=concurrency,
        repeats=repeats,
        on_progress=on_progress,
        on_sample=keep_reply,
    )
    workers = single_workers(setup)
    rows = tuple([await evaluation.row(f"single:{worker}") for worker in workers])
    accuracies = [row.outcomes for row in rows]
    tasks = [case.task for case in cases]
    outcomes = WorkerOutcomes(
        tuple(task.question for task in tasks),
        workers,
        np.array([[found[task.id] for found in accuracies] for task in tasks], dtype=np.float32),
        tuple(tuple(replies[row.strategy, task.id] for row in rows) for task in tasks),
        _costs(rows, [task.id for task in tasks]),
    )
    return SingleWorkerResults(rows, outcomes)


def _costs(rows: Sequence[StrategyRow], tasks: Sequence[str]) -> Array | None:
    """Return the mean cost of each task with each worker; None if any sample's is unknown."""
    import numpy as np

    costs = {(column, task): list[float]() for column in range(len(rows)) for task in tasks}
    for column, row in enumerate(rows):
        for sample in row.samples:
            if sample.cost_usd is None:
                return None
            costs[column, sample.task].append(sample.cost_usd)
    return np.array([[fmean(costs[column, task]) for column in range(len(rows))] for task in tasks])


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
            for number, fold in enumerate(split_folds(cases, fold_count, seed), start=1):
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


def split_folds(cases: Sequence[Case], count: int, seed: int) -> list[list[int]]:
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
