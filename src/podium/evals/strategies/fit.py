"""Fitting: strategies that learn are taught here, from what every worker makes of the same tasks.

    learned = await fit("routerdc", ensemble, cases, suite="gsm8k:train")
    write_learned(Path("fitted/routerdc.json"), learned)

Routers learn from who was right: every worker is asked every question, by the same evaluation
that measures strategies, so kept replies serve both. MASRouter tries plans and learns from what
became of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from podium._util.lab import ETUDES
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.evals.ensemble import Ensemble
from podium.evals.evaluation import Evaluation, Watch, unwatched
from podium.evals.recorded import WORDLESS, is_recorded, recorded_pool
from podium.evals.sample import Case, Sample, graded, suite_cases
from podium.evals.strategies.by_name import single_workers
from podium.evals.strategies.conducting import carried_out
from podium.evals.strategies.learned import (
    LEARNED,
    MASROUTER,
    Learned,
    fingerprints,
    needs_numpy,
)
from podium.evals.tables.row import Row
from podium.tasks import BENCHMARKS
from podium.tasks.gym import GYM
from podium.tasks.loaders import benchmark_named
from podium.tasks.reading import LeftOut
from podium.tasks.suites import loaded_suite

if TYPE_CHECKING:  # needs numpy, which only those have who fit
    from podium.conductors.routing.arrays import Array
    from podium.evals.strategies.routers import MakeEncoder, MasRouter, Outcomes
    from podium.evals.strategies.routers.masrouter import Drawn

TRAINING_SPLITS: Final = ("train", "val", "auxiliary_train")
"""What the split is called that may be learned from, the first that there is."""

USUAL_QUESTIONS: Final = 500
"""How many questions are learned from where no limit was named: every worker is asked each of
them. As many as the Conductor's paper took for RouterDC."""

APART: Final = 1_000_000
"""What is added to the seed of tasks that are generated, so that none is met again."""

ELSEWHERE: Final = {"math500": "math:train"}
"""Suites whose training split is another suite's."""

READS_REPLIES: Final = ("smoothie", "smoothie-local")
"""Strategies that learn from what workers say, and not from who was right."""


async def fit(
    name: str,
    ensemble: Ensemble,
    cases: Sequence[Case],
    *,
    suite: str = "",
    seed: int = 0,
    concurrency: int = 8,
    repeats: int = 1,
    encoder: str | None = None,
    watch: Watch = unwatched,
) -> Learned:
    """Teach the strategy of that name on these cases, which must not be those that it is
    measured by.

    With `repeats` every worker is asked so often, and learned from is how often it was right.
    `encoder` names a function that makes an encoder, as `module:function`.
    """
    check_learnable(name, ensemble)
    from podium.evals.strategies.routers import ROUTERS, encoder_maker

    maker = encoder_maker(encoder)
    if name == MASROUTER:
        taught = await _tried(
            ensemble, cases, seed=seed, concurrency=concurrency, encoder=maker, watch=watch
        )
        return Learned(name, suite, taught, fingerprints(cases))
    alone = await tried_alone(
        ensemble, cases, seed=seed, concurrency=concurrency, repeats=repeats, watch=watch
    )
    _check_answered(alone.rows)
    router = ROUTERS[name].fitted(alone.outcomes, maker, seed)
    return Learned(name, suite, router, fingerprints(cases))


def check_learnable(name: str, ensemble: Ensemble) -> None:
    """Refuse what cannot be fitted, before anything is asked."""
    if name not in LEARNED:
        raise UsageError(f"the strategy {name!r} is none that is fitted; {suggest(name, LEARNED)}")
    wordless = [worker.name for worker in ensemble.pool if worker.provider == WORDLESS]
    if name in READS_REPLIES and wordless:
        raise UsageError(
            f"the strategy {name!r} compares the words of replies, and those of {wordless[0]} were "
            f"not recorded, only whether they were right; use another strategy"
        )
    needs_numpy(f"fitting {name}")


def _check_answered(rows: Sequence[Row]) -> None:
    """Who answered nothing was not wrong but away, and that is nothing to learn."""
    for row in rows:
        if row.faults == len(row.samples):
            raise UsageError(
                f"{row.strategy} failed on all of {len(row.samples)} tries, first with: "
                f"{row.samples[0].fault}; mend that worker, or leave it out of the pool"
            )


def training_suite(name: str) -> str:
    """The suite that may be learned from before that one is measured: its training split, or
    what was named where that is a split or a file already."""
    kind, colon, _ = name.partition(":")
    if colon or Path(name).suffix:
        return name
    if kind == ETUDES or is_recorded(kind):
        return f"{kind}:train"
    spelt = benchmark_named(kind)
    if spelt in ELSEWHERE:
        return ELSEWHERE[spelt]
    _, *others = BENCHMARKS[spelt].splits if spelt is not None else ("",)
    for split in TRAINING_SPLITS:
        if split in others:
            return f"{kind}:{split}"
    raise UsageError(
        f"the suite {name!r} has no training split; name a suite or a file to learn from, or "
        f"measure it in parts by `podium eval folds`"
    )


class Lessons(NamedTuple):
    """The cases that may be learned from, and the lines of their file that are no tasks."""

    cases: tuple[Case, ...]
    left_out: tuple[LeftOut, ...] = ()


def training_cases(
    name: str, pool: Pool, *, data: Path | None = None, limit: int | None = None, seed: int = 0
) -> Lessons:
    """The tasks that may be learned from before that suite is measured; 500, when no limit is
    named, but all that were recorded."""
    named = training_suite(name)
    if is_recorded(named):
        found = recorded_pool(named, data=data, limit=limit, seed=seed)
        return Lessons(suite_cases(found.tasks, pool))
    seed += APART if named.partition(":")[0] == GYM else 0
    loaded = loaded_suite(named, data=data, limit=limit or USUAL_QUESTIONS, seed=seed)
    return Lessons(suite_cases(loaded.tasks, pool), loaded.left_out)


class Alone(NamedTuple):
    """Every worker asked alone: a row for each, and what routers learn from that."""

    rows: tuple[Row, ...]
    outcomes: Outcomes


async def tried_alone(
    ensemble: Ensemble,
    cases: Sequence[Case],
    *,
    seed: int,
    concurrency: int,
    repeats: int = 1,
    watch: Watch = unwatched,
) -> Alone:
    """Every worker on every case, asked the bare question: who is right, and what it says."""
    needs_numpy("learning from outcomes")
    import numpy as np

    from podium.evals.strategies.routers import Outcomes

    replies = dict[tuple[str, str], str]()

    def keep(strategy: str, sample: Sample, run: Run) -> None:
        if sample.repeat == 0:
            replies[strategy, sample.task] = run.answer or ""

    evaluation = Evaluation(
        ensemble,
        cases,
        seed=seed,
        concurrency=concurrency,
        repeats=repeats,
        watch=watch,
        keep=keep,
    )
    workers = single_workers(ensemble)
    rows = tuple([await evaluation.row(f"single:{worker}") for worker in workers])
    right = [row.outcomes for row in rows]
    tasks = [case.task for case in cases]
    shares = [[outcomes[task.id] for outcomes in right] for task in tasks]
    outcomes = Outcomes(
        tuple(task.question for task in tasks),
        workers,
        np.array(shares, dtype=np.float32),
        tuple(tuple(replies[row.strategy, task.id] for row in rows) for task in tasks),
        _costs(rows, [task.id for task in tasks]),
    )
    return Alone(rows, outcomes)


def _costs(rows: Sequence[Row], tasks: Sequence[str]) -> Array | None:
    """What each task cost with each worker, on the average over repeats; None where that is not
    known of every sample."""
    import numpy as np

    paid = {(place, task): list[float]() for place in range(len(rows)) for task in tasks}
    for place, row in enumerate(rows):
        for sample in row.samples:
            if sample.cost_usd is None:
                return None
            paid[place, sample.task].append(sample.cost_usd)
    return np.array([[fmean(paid[place, task]) for place in range(len(rows))] for task in tasks])


async def _tried(
    ensemble: Ensemble,
    cases: Sequence[Case],
    *,
    seed: int,
    concurrency: int,
    encoder: MakeEncoder,
    watch: Watch,
) -> MasRouter:
    """MASRouter after some passes over the cases, each with a plan drawn for it."""
    import numpy as np

    from podium.conductors.routing.arrays import normalize_seed
    from podium.evals.strategies.routers.masrouter import BATCH, PASSES, MasRouter, Teacher

    questions = [case.task.question for case in cases]
    teacher = Teacher(MasRouter.untaught(single_workers(ensemble), questions, encoder, seed))
    rng = np.random.default_rng(normalize_seed(seed))
    stage = ensemble.stage(seed)
    gate = asyncio.Semaphore(concurrency)

    async def earned(case: Case, plan: Drawn) -> float:
        async with gate:
            run = await carried_out(MASROUTER, plan.workflow, case, stage)
        return utility(await graded(case, run))

    done, total = 0, PASSES * len(cases)
    for _ in range(PASSES):
        order = [cases[int(place)] for place in rng.permutation(len(cases))]
        for batch in _batches(order, BATCH):
            plans = [teacher.router.drawn(c.task.question, c.pool, rng) for c in batch]
            rewards = await asyncio.gather(*map(earned, batch, plans))
            teacher.learn(plans, rewards)
            done += len(batch)
            watch(MASROUTER, done, total)
    return teacher.router


def utility(sample: Sample) -> float:
    """What a plan earned: one for a right answer, less what it cost."""
    from podium.evals.strategies.routers.masrouter import COST_RATE

    return float(sample.right) - COST_RATE * (sample.cost_usd or 0.0)


def _batches(cases: Sequence[Case], size: int) -> Iterable[Sequence[Case]]:
    return (cases[start : start + size] for start in range(0, len(cases), size))
