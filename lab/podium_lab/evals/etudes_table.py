"""The table of the études: what a trained conductor must show, and whether it does.

One call references every row over the same unseen études, one after another, so that a provider
which batches has a thousand tasks to batch at a time. What is held against which bar is below,
word for word; a bar that is not met stays in the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from podium._util.distribution import shares
from podium._util.lab import lab_extra
from podium.evals.evaluation import Evaluation, ProgressCallback, SampleCallback, ignore_progress
from podium.evals.results import StrategyRow, difference_document
from podium.evals.sample import EtudeVariant
from podium.evals.setup import EvalSetup
from podium.evals.statistics import round_figure
from podium.evals.text_table import format_number, markdown
from podium_lab.evals.cases import make_etude_cases
from podium_lab.evals.training_cost import NOT_MEASURED, TrainingCost

CEILING: Final = "ideal"
BEATEN: Final = ("moa", "reflection", "majority", "random", "baseline-conductor")
MAIN: Final = (CEILING, "conductor", "best-single", *BEATEN)

SHUFFLED: Final = EtudeVariant(shuffled=True)
SUBSET: Final = EtudeVariant(drop_one=True)
LONGER_SHARE: Final = 5
"""Of the longer chains there are one in so many of the other études."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must be shown: `met` by the figure itself and not by its interval, and None
    where it was not measured."""

    name: str
    demand: str
    reached: float | None
    met: bool | None

    def document(self) -> dict[str, Any]:
        """The bar as JSON."""
        told = self.reached is not None and math.isfinite(self.reached)  # JSON has no infinity
        reached = round_figure(self.reached) if told and self.reached is not None else None
        return {"name": self.name, "demand": self.demand, "reached": reached, "met": self.met}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtudesTable:
    """Every row of the table: the main ones by strategy, and the conductor elsewhere."""

    rows: Mapping[str, StrategyRow]
    two_rounds: StrategyRow
    shuffled: StrategyRow
    subset: StrategyRow
    longer: StrategyRow
    longer_ceiling: StrategyRow
    flaky: StrategyRow
    flaky_share: float
    training: TrainingCost = NOT_MEASURED

    @property
    def conductor(self) -> StrategyRow:
        """The row that it is all about."""
        return self.rows["conductor"]

    def all_rows(self) -> Iterator[tuple[str, StrategyRow]]:
        """Every row under the name that a reader of the table meets."""
        yield from self.rows.items()
        yield "conductor, two rounds", self.two_rounds
        yield "conductor, shuffled pools", self.shuffled
        yield "conductor, pools less one", self.subset
        yield "conductor, longer chains", self.longer
        yield "ideal, longer chains", self.longer_ceiling
        yield "recursion, flaky pool", self.flaky

    def document(self) -> dict[str, Any]:
        """The figures by the names under which they are looked up, and the bars."""
        conductor, ceiling = self.conductor, self.rows[CEILING]
        shapes_ceiling = ceiling.by_kind
        return {
            "n": len(conductor.samples),
            "ceiling": ceiling.accuracy.document(),
            "conductor": conductor.accuracy.document(),
            "by_shape": {
                shape: {**share.document(), "ceiling": shapes_ceiling[shape].document()}
                for shape, share in conductor.by_kind.items()
            },
            "best_single": self.rows["best-single"].accuracy.document(),
            **{name: self.rows[name].accuracy.document() for name in BEATEN},
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
            "rollouts_per_second": self.training.rollouts_per_second,
            "train_minutes": self.training.minutes,
            "flaky_share": self.flaky_share,
            "longer_chains": {
                **self.longer.accuracy.document(),
                "n": len(self.longer.samples),
                "ceiling": self.longer_ceiling.accuracy.document(),
            },
            "leads": {
                name: difference_document(conductor.against(self.rows[name]))
                for name in ("best-single", *BEATEN)
            },
            "two_rounds_difference": difference_document(self.two_rounds.against(conductor)),
            "shuffled_difference": difference_document(self.shuffled.against(conductor)),
            "subset_difference": difference_document(self.subset.against(conductor)),
            "requirements": [found.document() for found in self.requirements()],
            "rows": [
                {**row.document(self._best_single_beside(row)), "strategy": name}
                for name, row in self.all_rows()
            ],
        }

    def _best_single_beside(self, row: StrategyRow) -> StrategyRow | None:
        """The best single worker, for a row over the same cases."""
        same = (*self.rows.values(), self.two_rounds)
        return self.rows["best-single"] if any(row is one for one in same) else None

    def requirements(self) -> Iterator[Requirement]:
        """Everything that must be shown, one after the other."""
        yield from self._accuracy_requirements()
        yield from self._generality_requirements()
        yield from self._economy_requirements()
        yield from self._recursion_requirements()
        yield from self._training_requirements()

    def _accuracy_requirements(self) -> Iterator[Requirement]:
        ceiling = self.rows[CEILING].accuracy.value
        conductor = self.conductor.accuracy.value
        worst = min(share.value for share in self.conductor.by_kind.values())
        best = self.rows["best-single"].accuracy.value
        yield _at_least("ceiling", "ideal plans on the same workers: at least 0.95", ceiling, 0.95)
        yield _at_least(
            "conductor", "at least 0.90 of the ceiling overall", _ratio(conductor, ceiling), 0.90
        )
        yield _at_least(
            "by_shape", "at least 0.80 of the ceiling in every shape", _ratio(worst, ceiling), 0.80
        )
        yield _at_least(
            "best_single",
            "at least 2.5 times the accuracy of the best single worker",
            _ratio(conductor, best),
            2.5,
        )
        for name in BEATEN:
            lead = conductor - self.rows[name].accuracy.value
            yield _at_least(name, f"at least 0.20 more than {name}", lead, 0.20)

    def _generality_requirements(self) -> Iterator[Requirement]:
        for name, where, row in (
            ("shuffled", "in pools of another order", self.shuffled),
            ("subset", "in pools less a worker that is not needed", self.subset),
        ):
            change = abs(row.accuracy.value - self.conductor.accuracy.value)
            yield _at_most(name, f"within 0.03 {where}", change, 0.03)
        counts: Counter[str] = self.conductor.worker_counts
        yield _at_least(
            "entropy_bits", "worker entropy at least 1.5 bits", self.conductor.entropy_bits, 1.5
        )
        yield _at_most(
            "worker_share", "no worker above half", max(shares(counts).values(), default=None), 0.5
        )

    def _economy_requirements(self) -> Iterator[Requirement]:
        own, mixture = self.conductor.worker_tokens, self.rows["moa"].worker_tokens
        ratio = None if own is None or mixture is None else _ratio(own, mixture)
        yield _at_most("worker_tokens", "at most 1/3 of MoA's worker tokens", ratio, 1 / 3)
        yield _at_most(
            "steps_one_skill", "at most 1.2 steps for one skill", self.conductor.steps(1), 1.2
        )
        yield _at_least(
            "steps_three_skill", "at least 2.5 steps for three", self.conductor.steps(3), 2.5
        )

    def _recursion_requirements(self) -> Iterator[Requirement]:
        gain, accepted = self.flaky.recursion_gain, self.flaky.accepted_when_right
        yield _at_least(
            "recursion_gain", "at least +0.05 on the flaky pool", gain.share.value, 0.05
        )
        yield _at_least(
            "recursion_accept_right",
            "accepts at least 0.90 of right answers unchanged",
            accepted.value if any(sample.first_right for sample in self.flaky.samples) else None,
            0.90,
        )

    def _training_requirements(self) -> Iterator[Requirement]:
        yield _at_most("train_minutes", "trains in at most 25 minutes", self.training.minutes, 25.0)
        yield _at_least(
            "rollouts_per_second",
            "at least 150 complete rollouts a second",
            self.training.rollouts_per_second,
            150.0,
        )


async def measure_etudes(
    setup: EvalSetup,
    *,
    n: int,
    seed: int,
    concurrency: int,
    flaky: float | None = None,
    training: TrainingCost = NOT_MEASURED,
    on_progress: ProgressCallback = ignore_progress,
    on_sample: SampleCallback | None = None,
) -> EtudesTable:
    """Measure every row over `n` unseen études; `flaky` is the share of requests that the
    specialists of the flaky pool decline."""
    with lab_extra():
        from podium_lab.etudes.plan_examples import FLAKY
        from podium_lab.etudes.tasks import LONGER
    flaky = FLAKY if flaky is None else flaky

    def evaluation(
        name: str, who: EvalSetup, count: int, variant: EtudeVariant | None
    ) -> Evaluation:
        return Evaluation(
            who,
            make_etude_cases(count, seed, who.pool, variant),
            seed=seed,
            concurrency=concurrency,
            on_progress=lambda strategy, done, total: on_progress(f"{name}{strategy}", done, total),
            on_sample=on_sample
            and (lambda strategy, sample, run: on_sample(f"{name}{strategy}", sample, run)),
        )

    main = evaluation("", setup, n, None)
    longer = evaluation("longer-", setup, max(1, n // LONGER_SHARE), EtudeVariant(shapes=LONGER))
    unreliable = setup.with_flaky_workers(flaky, seed)
    return EtudesTable(
        rows={name: await main.row(name) for name in MAIN},
        two_rounds=await main.row("recursion"),
        shuffled=await evaluation("shuffled-", setup, n, SHUFFLED).row("conductor"),
        subset=await evaluation("subset-", setup, n, SUBSET).row("conductor"),
        longer=await longer.row("conductor"),
        longer_ceiling=await longer.row(CEILING),
        flaky=await evaluation("flaky-", unreliable, n, None).row("recursion"),
        flaky_share=flaky,
        training=training,
    )


def _ratio(one: float, other: float) -> float:
    """How many times the other the one is: endlessly many times where only the other is 0."""
    if other:
        return one / other
    return math.inf if one else 0.0


def _at_least(name: str, demand: str, reached: float | None, least: float) -> Requirement:
    return Requirement(
        name,
        demand,
        reached,
        None if reached is None else round_figure(reached) >= round_figure(least),
    )


def _at_most(name: str, demand: str, reached: float | None, most: float) -> Requirement:
    return Requirement(
        name,
        demand,
        reached,
        None if reached is None else round_figure(reached) <= round_figure(most),
    )


REQUIREMENT_COLUMNS: Final = ("requirement", "reached", "met")
_MET: Final = {True: "yes", False: "NO", None: "not measured"}


def requirements_table(requirements: Iterable[Requirement]) -> str:
    """Return a Markdown table of requirements and whether they are met."""
    cells = [(r.demand, format_number(r.reached, 3), _MET[r.met]) for r in requirements]
    return markdown(REQUIREMENT_COLUMNS, cells)
