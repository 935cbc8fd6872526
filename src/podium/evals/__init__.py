"""Evaluation: ways to answer, measured over the same tasks with the same workers.

    Evaluation, reported     strategies over cases, and the rows that come of them
    Case, etude_cases        a task over a pool of its own
    Strategy, Stage          one function from a case to its run, and what it may use
    Ensemble, opened         the workers and conductors that take part
    measure_etudes           the table that a conductor of the études is judged by
    compared                 two evaluations of the same tasks against each other

Where tasks come from is `podium.tasks` and `podium.etudes`; terminals are `podium.cli.eval`.
"""

from __future__ import annotations

from podium.etudes.perfect import OracleWorker, oracle_workers
from podium.evals.case import Case, Variant, etude_cases, suite_cases
from podium.evals.comparison import Comparison, compared
from podium.evals.ensemble import Ensemble, opened
from podium.evals.etudes_table import EtudesTable, measure_etudes
from podium.evals.evaluation import Evaluation
from podium.evals.report import Report, Wanted, reported
from podium.evals.row import Row
from podium.evals.sample import Sample
from podium.evals.stage import Stage, Strategy
from podium.evals.strategies import STRATEGIES

__all__ = [
    "STRATEGIES",
    "Case",
    "Comparison",
    "Ensemble",
    "EtudesTable",
    "Evaluation",
    "OracleWorker",
    "Report",
    "Row",
    "Sample",
    "Stage",
    "Strategy",
    "Variant",
    "Wanted",
    "compared",
    "etude_cases",
    "measure_etudes",
    "opened",
    "oracle_workers",
    "reported",
    "suite_cases",
]
