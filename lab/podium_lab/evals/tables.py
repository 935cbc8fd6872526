"""The table of the études: what a trained conductor must show.

Every row is measured over the same unseen études, one row after another, so that a provider which
batches has a thousand tasks to batch at a time. A requirement that is not met stays in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import ge, le
from random import Random
from typing import Any, Final

from podium._util.distribution import shares
from podium.core.pool import Pool
from podium.evals.evaluation import Evaluation, ProgressCallback, SampleCallback, ignore_progress
from podium.evals.results import (
    StrategyRow,
    difference_document,
    format_number,
    markdown,
    round_figure,
)
from podium.evals.sample import Case, check_roles
from podium.evals.setup import EvalSetup
from podium_lab.etudes import DEFAULT_SHAPES, FAMILIES, ROLES, EtudeShape, FlakyWorker
from podium_lab.etudes.etude import held_out
from podium_lab.etudes.plan_examples import FLAKY
from podium_lab.etudes.tasks import LONGER_SHAPES, etude_task
from podium_lab.etudes.workers import pool_profiles


def make_etude_cases(
    n: int,
    seed: int,
    pool: Pool,
    *,
    shapes: Mapping[EtudeShape, float] = DEFAULT_SHAPES,
    shuffled: bool = False,
    drop_one: bool = False,
) -> tuple[Case, ...]:
    """Return unseen études with pools of that pool's workers, which are named by their roles.

    The same seed gives the same études and pools. `shuffled` orders each pool anew; `drop_one`
    removes a worker that the étude does not need.
    """
    check_roles(pool)
    cases = []
    for etude in held_out(n, seed, shapes):
        drawn = _describe(pool, Random(f"{seed}/{etude.id}/pool"))  # noqa: S311 - repeatable
        rng = Random(f"{seed}/{etude.id}/variant")  # noqa: S311
        if drop_one:
            spare = [name for name in drawn.names if name not in etude.families]
            drawn = drawn.without([rng.choice(spare)]) if spare else drawn
        if shuffled:
            drawn = replace(drawn, workers=tuple(rng.sample(drawn.workers, len(drawn))))
        cases.append(Case(etude_task(etude), drawn, etude.own_plan))
    return tuple(cases)


def with_flaky_specialists(setup: EvalSetup, share: float, seed: int) -> EvalSetup:
    families = {family.value for family in FAMILIES}
    workers = {
        name: FlakyWorker(worker, share, seed) if name in families else worker
        for name, worker in setup.workers.items()
    }
    return replace(setup, workers=workers)


def _describe(pool: Pool, rng: Random) -> Pool:
    """Return the workers with a role, in an order and with descriptions unseen in training."""
    roles = {role: pool[role].model for role in ROLES if role in pool.names}
    drawn = pool_profiles(rng, roles, split="test")
    workers = tuple(
        replace(pool[worker.name], description=worker.description, fallback=None)
        for worker in drawn
    )
    return replace(drawn, workers=workers)


CEILING: Final = "ideal"
CONDUCTOR: Final = "conductor"
BEST_SINGLE: Final = "best-single"
COMPARED: Final = ("moa", "reflection", "majority", "random", "baseline-conductor")
MAIN_STRATEGIES: Final = (CEILING, CONDUCTOR, BEST_SINGLE, *COMPARED)

LONGER_DIVISOR: Final = 5
"""Of the longer chains there are one in so many of the other études."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must be shown, by the figure itself and not by its interval.

    `holds` compares the figure with the limit; `met` is None where it was not measured.
    """

    name: str
    demand: str
    reached: float | None
    holds: Callable[[float, float], bool]
    limit: float

    @property
    def met(self) -> bool | None:
        if self.reached is None:
            return None
        return self.holds(round_figure(self.reached), round_figure(self.limit))

    def document(self) -> dict[str, Any]:
        is_finite = self.reached is not None and math.isfinite(self.reached)
        reached = round_figure(self.reached) if is_finite and self.reached is not None else None
        return {"name": self.name, "demand": self.demand, "reached": reached, "met": self.met}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtudesResults:
    """Every row of the table: the main ones by strategy, and the conductor elsewhere."""

    rows: Mapping[str, StrategyRow]
    two_rounds: StrategyRow
    shuffled: StrategyRow
    subset: StrategyRow
    longer: StrategyRow
    longer_ceiling: StrategyRow
    flaky: StrategyRow
    flaky_share: float

    def all_rows(self) -> Iterator[tuple[str, StrategyRow]]:
        yield from self.rows.items()
        yield "conductor, two rounds", self.two_rounds
        yield "conductor, shuffled pools", self.shuffled
        yield "conductor, pools less one", self.subset
        yield "conductor, longer chains", self.longer
        yield "ideal, longer chains", self.longer_ceiling
        yield "recursion, flaky pool", self.flaky

    def document(self) -> dict[str, Any]:
        conductor, ceiling = self.rows[CONDUCTOR], self.rows[CEILING]
        best = self.rows[BEST_SINGLE]
        beside_best = (*self.rows.values(), self.two_rounds)  # rows over the same cases
        return {
            "n": len(conductor.samples),
            "ceiling": ceiling.accuracy.document(),
            "conductor": conductor.accuracy.document(),
            "by_shape": {
                shape: {**share.document(), "ceiling": ceiling.by_kind[shape].document()}
                for shape, share in conductor.by_kind.items()
            },
            "best_single": best.accuracy.document(),
            **{name: self.rows[name].accuracy.document() for name in COMPARED},
            "two_rounds": self.two_rounds.accuracy.document(),
            "shuffled": self.shuffled.accuracy.document(),
            "subset": self.subset.accuracy.document(),
            "worker_tokens_conductor": conductor.worker_tokens,
            "orchestration_tokens_conductor": conductor.orchestration_tokens,
            "worker_tokens_moa": self.rows["moa"].worker_tokens,
            "entropy_bits": conductor.entropy_bits,
            "steps_one_skill": conductor.steps(1),
            "steps_three_skill": conductor.steps(3),
            "recursion_gain": difference_document(self.flaky.recursion_gain),
            "recursion_accept_right": self.flaky.accepted_when_right.document(),
            "flaky_share": self.flaky_share,
            "longer_chains": {
                **self.longer.accuracy.document(),
                "n": len(self.longer.samples),
                "ceiling": self.longer_ceiling.accuracy.document(),
            },
            "leads": {
                name: difference_document(conductor.paired_difference(self.rows[name]))
                for name in (BEST_SINGLE, *COMPARED)
            },
            "two_rounds_difference": difference_document(
                self.two_rounds.paired_difference(conductor)
            ),
            "shuffled_difference": difference_document(self.shuffled.paired_difference(conductor)),
            "subset_difference": difference_document(self.subset.paired_difference(conductor)),
            "requirements": [found.document() for found in self.requirements()],
            "rows": [
                {
                    **row.document(best if any(row is one for one in beside_best) else None),
                    "strategy": name,
                }
                for name, row in self.all_rows()
            ],
        }

    def requirements(self) -> list[Requirement]:
        own, ceiling = self.rows[CONDUCTOR], self.rows[CEILING].accuracy.value
        accuracy = own.accuracy.value
        overall = _ratio(accuracy, ceiling)
        worst = _ratio(min(share.value for share in own.by_kind.values()), ceiling)
        best = _ratio(accuracy, self.rows[BEST_SINGLE].accuracy.value)
        mine, theirs = own.worker_tokens, self.rows["moa"].worker_tokens
        tokens = None if mine is None or theirs is None else _ratio(mine, theirs)
        has_right = any(sample.first_right for sample in self.flaky.samples)
        kept = self.flaky.accepted_when_right.value if has_right else None
        gain = self.flaky.recursion_gain.estimate.value
        largest_share = max(shares(own.worker_counts).values(), default=None)
        leads = [(name, accuracy - self.rows[name].accuracy.value) for name in COMPARED]
        shuffled, subset = (
            abs(row.accuracy.value - accuracy) for row in (self.shuffled, self.subset)
        )
        found: list[tuple[str, str, float | None, Callable[[float, float], bool], float]] = [
            ("ceiling", "ideal plans on the same workers: at least 0.95", ceiling, ge, 0.95),
            ("conductor", "at least 0.90 of the ceiling overall", overall, ge, 0.90),
            ("by_shape", "at least 0.80 of the ceiling in every shape", worst, ge, 0.80),
            ("best_single", "at least 2.5 times the best single worker's accuracy", best, ge, 2.5),
            *((name, f"at least 0.20 more than {name}", lead, ge, 0.20) for name, lead in leads),
            ("shuffled", "within 0.03 in pools of another order", shuffled, le, 0.03),
            ("subset", "within 0.03 in pools less a worker that is not needed", subset, le, 0.03),
            ("entropy_bits", "worker entropy at least 1.5 bits", own.entropy_bits, ge, 1.5),
            ("worker_share", "no worker above half", largest_share, le, 0.5),
            ("worker_tokens", "at most 1/3 of MoA's worker tokens", tokens, le, 1 / 3),
            ("steps_one_skill", "at most 1.2 steps for one skill", own.steps(1), le, 1.2),
            ("steps_three_skill", "at least 2.5 steps for three", own.steps(3), ge, 2.5),
            ("recursion_gain", "at least +0.05 on the flaky pool", gain, ge, 0.05),
            ("recursion_accept_right", "accepts at least 0.90 of right answers", kept, ge, 0.90),
        ]
        return [Requirement(*row) for row in found]


async def measure_etudes(
    setup: EvalSetup,
    *,
    n: int,
    seed: int,
    concurrency: int,
    flaky: float | None = None,
    on_progress: ProgressCallback = ignore_progress,
    on_sample: SampleCallback | None = None,
) -> EtudesResults:
    """Measure every row over `n` unseen études; `flaky` is the share of requests that the
    specialists of the flaky pool decline."""
    flaky = FLAKY if flaky is None else flaky

    def evaluation(name: str, who: EvalSetup, count: int = n, **variant: Any) -> Evaluation:
        return Evaluation(
            who,
            make_etude_cases(count, seed, who.pool, **variant),
            seed=seed,
            concurrency=concurrency,
            on_progress=lambda strategy, done, total: on_progress(f"{name}{strategy}", done, total),
            on_sample=on_sample
            and (lambda strategy, sample, run: on_sample(f"{name}{strategy}", sample, run)),
        )

    main = evaluation("", setup)
    longer = evaluation("longer-", setup, max(1, n // LONGER_DIVISOR), shapes=LONGER_SHAPES)
    shuffled = evaluation("shuffled-", setup, shuffled=True)
    subset = evaluation("subset-", setup, drop_one=True)
    unreliable = with_flaky_specialists(setup, flaky, seed)
    return EtudesResults(
        rows={name: await main.row(name) for name in MAIN_STRATEGIES},
        two_rounds=await main.row("recursion"),
        shuffled=await shuffled.row(CONDUCTOR),
        subset=await subset.row(CONDUCTOR),
        longer=await longer.row(CONDUCTOR),
        longer_ceiling=await longer.row(CEILING),
        flaky=await evaluation("flaky-", unreliable).row("recursion"),
        flaky_share=flaky,
    )


def _ratio(one: float, other: float) -> float:
    """Divide; infinity where only the divisor is 0."""
    if other:
        return one / other
    return math.inf if one else 0.0


def requirements_table(requirements: Iterable[Requirement]) -> str:
    met = {True: "yes", False: "NO", None: "not measured"}
    cells = [(r.demand, format_number(r.reached, 3), met[r.met]) for r in requirements]
    return markdown(("requirement", "reached", "met"), cells)
