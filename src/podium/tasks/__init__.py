"""Tasks for training and evaluation: suites, their files, and graders.

load_suite      études, a benchmark, a reasoning-gym generator or a user's file, by name or
                path; `read_suite` also returns the lines that it skipped
TaskRecord      a task as data; `save_suite`, `load_task_file` and `read_records` for files
paper_mix       the paper's mix of training problems; `build_mix` for any other
make_grader     a grader by name
"""

from __future__ import annotations

from podium.tasks.benchmarks import BENCHMARKS, load_records
from podium.tasks.graders import GRADERS, make_grader
from podium.tasks.records import (
    LoadedTasks,
    SkippedLine,
    TaskRecord,
    load_task_file,
    read_records,
    save_suite,
)
from podium.tasks.suites import (
    NAMES,
    PAPER_SOURCES,
    SplitShares,
    TrainingMix,
    build_mix,
    gym_suite,
    load_source,
    load_suite,
    paper_mix,
    read_suite,
)

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "NAMES",
    "PAPER_SOURCES",
    "LoadedTasks",
    "SkippedLine",
    "SplitShares",
    "TaskRecord",
    "TrainingMix",
    "build_mix",
    "gym_suite",
    "load_records",
    "load_source",
    "load_suite",
    "load_task_file",
    "make_grader",
    "paper_mix",
    "read_records",
    "read_suite",
    "save_suite",
]
