"""Fit strategies that learn, from the results of every worker on the same tasks.

    learned = await fit("routerdc", setup, cases, suite="gsm8k:train")
    write_learned(Path("fitted/routerdc.json"), learned)

Every worker answers every question in an ordinary evaluation, so cached replies are reused.
MASRouter tries plans instead and learns from their rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from podium._util.lab import ETUDES, lab_extra
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.evals.evaluation import Evaluation, ProgressCallback, ignore_progress
from podium.evals.recorded import WORDLESS, is_recorded, recorded_pool
from podium.evals.report import LoadedCases
from podium.evals.results import StrategyRow
from podium.evals.sample import Case, Sample, make_cases
from podium.evals.setup import EvalSetup
from podium.evals.strategies.learned import (
    LEARNED,
    MASROUTER,
    LearnedStrategy,
    question_fingerprints,
    require_numpy,
)
from podium.evals.strategies.registry import single_workers
from podium.tasks.benchmarks import BENCHMARKS, resolve_benchmark
from podium.tasks.gym import GYM
from podium.tasks.suites import read_suite

if TYPE_CHECKING:  # needs numpy
    from podium.conductors.routing.arrays import Array
    from podium.evals.strategies.routers import WorkerOutcomes

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
