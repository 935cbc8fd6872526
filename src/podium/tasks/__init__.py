"""Tasks for training and evaluation: suites, their files, and graders.

load_suite      études, a benchmark, a reasoning-gym generator or a user's file, by name or
                path; `read_suite` also returns the lines that it skipped
TaskRecord      a task as data; `save_suite` and `read_records` for files
build_mix       training problems of several benchmarks, as in the paper
make_grader     a grader by name
"""

from __future__ import annotations

from podium.tasks.benchmarks import BENCHMARKS, load_records
from podium.tasks.graders import GRADERS, make_grader
from podium.tasks.records import TaskRecord, read_records, save_suite
from podium.tasks.suites import (
    NAMES,
    SplitShares,
    build_mix,
    load_source,
    load_suite,
    read_suite,
)

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "NAMES",
    "SplitShares",
    "TaskRecord",
    "build_mix",
    "load_records",
    "load_source",
    "load_suite",
    "make_grader",
    "read_records",
    "read_suite",
    "save_suite",
]
