from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

SAY = "import podium.routing, os; print(os.environ['OPENBLAS_NUM_THREADS'])"


@pytest.mark.parametrize(("said", "threads"), [(None, "1"), ("3", "3")])
def test_linear_algebra_gets_one_thread_unless_somebody_said_otherwise(
    said: str | None, threads: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if said is not None:
        environment["OPENBLAS_NUM_THREADS"] = said
    ended = subprocess.run(
        [sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == threads
