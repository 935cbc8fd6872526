from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

IMPORT = "import podium.conductors.routing"
ENTER = "from podium.cli import main; main(['--version'])"
SAY = "import os; print(os.environ.get('OPENBLAS_NUM_THREADS'))"


@pytest.mark.parametrize(
    ("does", "said", "threads"),
    [(IMPORT, None, "None"), (ENTER, None, "1"), (ENTER, "3", "3")],
)
def test_our_commands_run_linear_algebra_in_one_thread_unless_set_otherwise(
    does: str, said: str | None, threads: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if said is not None:
        environment["OPENBLAS_NUM_THREADS"] = said
    ended = subprocess.run(
        [sys.executable, "-c", f"{does}; {SAY}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == threads
