"""Tasks to train on and to measure by: where they come from, and how replies to them are graded.

    suite           the front door: études, a benchmark, a generator of reasoning-gym or a
                    user's own file, by name or path; `loaded_suite` names what it left out
    TaskRecord      a task as data; `save_suite`, `load_suite` and `read_records` for files
    paper_mix       the paper's mix of training problems; `build_mix` for any other
    make_grader     a grader by its name

No worker is asked here. What a task is, is `podium.task`.
"""

from __future__ import annotations

from podium.tasks.benchmarks import BENCHMARKS
from podium.tasks.graders import GRADERS, make_grader
from podium.tasks.gym import gym_suite
from podium.tasks.loaders import load_records
from podium.tasks.mix import PAPER_SOURCES, Mix, Shares, build_mix, load_source, paper_mix
from podium.tasks.own import load_suite, read_records
from podium.tasks.reading import LeftOut
from podium.tasks.record import TaskRecord, save_suite
from podium.tasks.suites import NAMES, LoadedSuite, loaded_suite, suite

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "NAMES",
    "PAPER_SOURCES",
    "LeftOut",
    "LoadedSuite",
    "Mix",
    "Shares",
    "TaskRecord",
    "build_mix",
    "gym_suite",
    "load_records",
    "load_source",
    "load_suite",
    "loaded_suite",
    "make_grader",
    "paper_mix",
    "read_records",
    "save_suite",
    "suite",
]
