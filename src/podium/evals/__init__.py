"""Evaluation: strategies compared on the same tasks with the same workers.

    setup, context      the workers that take part, and what a strategy works with
    sample, evaluation  one graded answer, and strategies run over cases
    report              an evaluation from its specification
    log                 the results directory, written and read back
    results, comparison, statistics     rows, reference rows, differences, intervals
    strategies/         the ways to answer
    recorded            workers that replay recorded results of real models
    page/               HTML reports

Tasks come from `podium.tasks`; the commands are in `podium.cli`.
"""

from __future__ import annotations

from podium.evals.cluster import SetupSpec, open_cluster
from podium.evals.comparison import (
    Comparison,
    ReferenceRows,
    compare_directories,
    find_references,
)
from podium.evals.context import EvalContext, Strategy
from podium.evals.evaluation import Evaluation
from podium.evals.log import EvalLog, EvalLogWriter, read_eval_log
from podium.evals.recorded import RecordedPool, recorded_pool
from podium.evals.report import EvalReport, EvalSpec, run_eval
from podium.evals.results import StrategyRow
from podium.evals.sample import Case, EtudeVariant, Sample, make_cases
from podium.evals.setup import EvalSetup, open_setup
from podium.evals.strategies import STRATEGIES
from podium.evals.strategies.cross_validation import CrossValidation, cross_validate
from podium.evals.strategies.learned import LEARNED, LearnedStrategy, read_learned, write_learned

__all__ = [
    "LEARNED",
    "STRATEGIES",
    "Case",
    "Comparison",
    "CrossValidation",
    "EtudeVariant",
    "EvalContext",
    "EvalLog",
    "EvalLogWriter",
    "EvalReport",
    "EvalSetup",
    "EvalSpec",
    "Evaluation",
    "LearnedStrategy",
    "RecordedPool",
    "ReferenceRows",
    "Sample",
    "SetupSpec",
    "Strategy",
    "StrategyRow",
    "compare_directories",
    "cross_validate",
    "find_references",
    "make_cases",
    "open_cluster",
    "open_setup",
    "read_eval_log",
    "read_learned",
    "recorded_pool",
    "run_eval",
    "write_learned",
]
