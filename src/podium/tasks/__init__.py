"""Tasks to train on and to measure by: where they come from, and how replies to them are graded.

    suite           the front door: études, a benchmark or a user's own file, by name or path
    TaskRecord      a task as data; `save_suite`, `load_suite` and `read_records` for files
    etude_task      an étude as a task; `everyday_task` for an everyday question
    paper_mix       the paper's mix of training problems; `build_mix` for any other
    make_grader     a grader by its name

No worker is asked here. What a task is, is `podium.task`.
"""

from __future__ import annotations

from podium.tasks.etude import etude_suite, etude_task
from podium.tasks.everyday import everyday_suite, everyday_task
from podium.tasks.graders import GRADERS, make_grader
from podium.tasks.loaders import BENCHMARKS, load_records
from podium.tasks.mix import PAPER_SOURCES, Mix, Shares, build_mix, load_source, paper_mix
from podium.tasks.own import load_suite, read_records
from podium.tasks.record import TaskRecord, save_suite
from podium.tasks.suites import NAMES, suite

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "NAMES",
    "PAPER_SOURCES",
    "Mix",
    "Shares",
    "TaskRecord",
    "build_mix",
    "etude_suite",
    "etude_task",
    "everyday_suite",
    "everyday_task",
    "load_records",
    "load_source",
    "load_suite",
    "make_grader",
    "paper_mix",
    "read_records",
    "save_suite",
    "suite",
]
