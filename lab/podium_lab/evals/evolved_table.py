"""The table of evolved coordinators beside the trained conductor and the best single worker.

All are measured over the same unseen études, one after another, and each row has its cost of
learning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.evals.evaluation import Evaluation, ProgressCallback, SampleCallback, ignore_progress
from podium.evals.results import (
    UNKNOWN,
    IntervalEstimate,
    StrategyRow,
    difference_document,
    format_interval,
    format_number,
    markdown,
)
from podium.evals.setup import EvalSetup
from podium_lab.evals.cases import make_etude_cases
from podium_lab.evals.training_cost import NOT_MEASURED, TrainingCost

CONDUCTOR: Final = "conductor"
BEST_SINGLE: Final = "best-single"
NOTHING_LEARNED: Final = TrainingCost(minutes=0.0, rollouts=0, parameters=0)


@dataclass(frozen=True, slots=True)
class Learner:
    """A strategy that learned, its name in the table, its cost of learning, and a note."""

    name: str
    strategy: str
    took: TrainingCost = NOT_MEASURED
    note: str = ""


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """A learner's row of the table."""

    learner: Learner
    row: StrategyRow

    @property
    def one_skill(self) -> IntervalEstimate | None:
        """Return the accuracy on questions of one skill; None without any."""
        found = tuple(sample for sample in self.row.samples if sample.skills == 1)
        return StrategyRow(self.row.strategy, found).accuracy if found else None


@dataclass(frozen=True, slots=True)
class EvolvedTable:
    """The conductor, the coordinators in their order, and the best single worker. The others are
    compared with the first coordinator."""

    rows: tuple[LearnedRow, ...]

    def document(self) -> dict[str, Any]:
        conductor, evolved, *_, best_single = self.rows
        return {
            "n": len(conductor.row.outcomes),
            "rows": [
                {
                    **found.row.document(best_single.row),
                    "strategy": found.learner.name,
                    "turns": found.row.steps(),
                    "one_skill": found.one_skill.document() if found.one_skill else None,
                    **found.learner.took.document(),
                    **{
                        f"against_{name}": difference_document(
                            found.row.paired_difference(other.row)
                        )
                        for name, other in (("conductor", conductor), ("evolved", evolved))
                        if other is not found
                    },
                }
                for found in self.rows
            ],
        }


async def measure_evolved(
    setup: EvalSetup,
    coordinators: Sequence[Learner],
    *,
    n: int,
    seed: int,
    concurrency: int,
    conductor: TrainingCost = NOT_MEASURED,
    on_progress: ProgressCallback = ignore_progress,
    on_sample: SampleCallback | None = None,
) -> EvolvedTable:
    """Measure the conductor, these coordinators, and every worker alone, over `n` unseen études;
    `conductor` is what training the conductor took."""
    evaluation = Evaluation(
        setup,
        make_etude_cases(n, seed, setup.pool),
        seed=seed,
        concurrency=concurrency,
        on_progress=on_progress,
        on_sample=on_sample,
    )
    learners = (
        Learner(CONDUCTOR, CONDUCTOR, conductor),
        *coordinators,
        Learner(BEST_SINGLE, BEST_SINGLE, NOTHING_LEARNED),
    )
    for learner in learners:
        evaluation.check(learner.strategy)
    rows = []
    for learner in learners:
        row = await evaluation.row(learner.strategy)
        rows.append(LearnedRow(learner, replace(row, note=learner.note or row.note)))
    return EvolvedTable(tuple(rows))


COLUMNS: Final = (
    *("strategy", "accuracy", "95 % interval", "one skill", "turns"),
    *("worker tokens", "orchestration tokens", "errors"),
    *("training minutes", "parameters trained", "evaluations"),
)


def learners_table(rows: Iterable[LearnedRow]) -> str:
    """Return a Markdown table of learned strategies with the cost of learning."""
    return markdown(COLUMNS, [_cells(found) for found in rows])


def _cells(found: LearnedRow) -> Sequence[str]:
    row, took = found.row, found.learner.took
    return (
        found.learner.name,
        f"{row.accuracy.value:.3f}",
        format_interval(row.accuracy),
        format_number(found.one_skill.value if found.one_skill else None, 3),
        format_number(row.steps(), 2),
        format_number(row.worker_tokens, 0),
        format_number(row.orchestration_tokens, 0),
        str(row.errors),
        format_number(took.minutes, 1),
        *(UNKNOWN if n is None else f"{n:,}" for n in (took.parameters, took.rollouts)),
    )
