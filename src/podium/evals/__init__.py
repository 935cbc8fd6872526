"""Evaluation: ways to answer, measured over the same tasks with the same workers.

    Evaluation, reported     strategies over cases, and the rows that come of them
    Case, etude_cases        a task over a pool of its own
    Strategy, Stage          one function from a case to its run, and what it may use
    Ensemble, opened         the workers and conductors that take part
    cross_validated          strategies that learn, measured in folds; `fit` teaches them
    recorded_pool            workers that reply what was recorded of real models
    measure_etudes           the table that a conductor of the études is judged by
    read_measured            an evaluation read back: its rows, and the run behind any sample
    yardsticks               what rows are held against: the best single worker, the ceiling
    compared                 two evaluations of the same tasks against each other
    SampleFiles              the directory that an evaluation writes, and goes on from
    spread                   the same samples, made by the machines of a Ray cluster

The modules here run an evaluation. Below them:

    strategies/     the ways to answer, those that learn among them
    recorded/       workers that reply what was recorded of real models, and the files of records
    tables/         what samples come to: rows, chance, yardsticks, comparisons, the études' table
    page/           pages and pictures to show

Where tasks come from is `podium.tasks` and `podium_lab.etudes`; terminals are `podium.cli.eval`.
"""

from __future__ import annotations

from podium.evals.cluster import Opening, spread
from podium.evals.context import EvalContext, Strategy
from podium.evals.ensemble import Ensemble, opened
from podium.evals.evaluation import Evaluation
from podium.evals.recorded import RecordedPool, recorded_pool
from podium.evals.report import EvalSpec, Report, reported
from podium.evals.sample import Case, Sample, Variant, etude_cases, suite_cases
from podium.evals.strategies import STRATEGIES
from podium.evals.strategies.folds import Folded, cross_validated
from podium.evals.strategies.learned import LEARNED, Learned, read_learned, write_learned
from podium.evals.tables.comparison import Comparison, Yardsticks, compared, yardsticks
from podium.evals.tables.etudes import EtudesTable, measure_etudes
from podium.evals.tables.measured import Measured, read_measured
from podium.evals.tables.row import Row
from podium.evals.written import SampleFiles
from podium.tasks.cluster import Replies

__all__ = [
    "LEARNED",
    "STRATEGIES",
    "Case",
    "Comparison",
    "Ensemble",
    "EtudesTable",
    "EvalContext",
    "EvalSpec",
    "Evaluation",
    "Folded",
    "Learned",
    "Measured",
    "Opening",
    "RecordedPool",
    "Replies",
    "Report",
    "Row",
    "Sample",
    "SampleFiles",
    "Strategy",
    "Variant",
    "Yardsticks",
    "compared",
    "cross_validated",
    "etude_cases",
    "measure_etudes",
    "opened",
    "read_learned",
    "read_measured",
    "recorded_pool",
    "reported",
    "spread",
    "suite_cases",
    "write_learned",
    "yardsticks",
]
