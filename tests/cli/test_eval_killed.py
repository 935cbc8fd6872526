"""Evaluations that are killed and begun again, each as a process of its own.

`PODIUM_KILLS=20` kills so often, over more tasks, and says what it saw with `pytest -s`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.support import REPOSITORY, RULES, MakePool

ASKED_LOG = REPOSITORY / "tests" / "support" / "asked_log.py"
KILLS = int(os.environ.get("PODIUM_KILLS", "2"))
TASKS = 10 * KILLS
WORKERS = ("ann", "ben", "cleo", "dan", "eve")
STRATEGIES = "best-single,majority,moa,reflection,conductor,random"
LONGEST_SECONDS = 120.0


@pytest.fixture
def arguments(make_pool: MakePool, tmp_path: Path) -> list[str]:
    """What is measured, whichever directory it goes to."""
    tasks = tmp_path / "tasks.jsonl"
    lines = [
        {"id": f"t{n}", "question": f"What is {n} of it?", "answer": "42", "grader": "number"}
        for n in range(TASKS)
    ]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    pool = make_pool(dict.fromkeys(WORKERS, ""), head=RULES)
    command = ("eval", "run", tasks, "--pool", pool, "--strategy", STRATEGIES, "--json")
    return [*map(str, command), "--seed", "3", "--output"]


def started(log: Path, arguments: list[str], output: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ASKED_LOG), str(log), *arguments, str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )


def table(process: subprocess.Popen[str]) -> Any:
    """What is printed in the end, but for the times, which are never the same."""
    out, err = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, err
    document = json.loads(out)
    for row in document["rows"]:
        del row["seconds"]
    return document


def killed_after(process: subprocess.Popen[str], log: Path, size: int) -> bool:
    """Kill the process once the log has so many bytes; False if it ended before."""
    until = time.monotonic() + LONGEST_SECONDS
    while process.poll() is None and time.monotonic() < until:
        if log.exists() and log.stat().st_size >= size:
            process.kill()
            break
        time.sleep(0.0005)  # another process sets no event
    process.communicate(timeout=LONGEST_SECONDS)
    return process.returncode != 0


def test_killed_at_any_moment_it_continues_without_a_call_for_what_they_have_answered(
    arguments: list[str], tmp_path: Path
) -> None:
    whole_log, log = tmp_path / "whole.log", tmp_path / "killed.log"
    whole = table(started(whole_log, arguments, tmp_path / "whole"))
    size, rng = whole_log.stat().st_size, Random(KILLS)
    moments = sorted(rng.uniform(0, 0.97) for _ in range(KILLS))
    kills = sum(
        killed_after(started(log, arguments, tmp_path / "killed"), log, int(size * moment))
        for moment in moments
    )
    assert kills == KILLS
    assert table(started(log, arguments, tmp_path / "killed")) == whole

    answered, asked = set[str](), Counter[str]()
    for line in log.read_text("utf-8").splitlines():
        what, thing = line.split(" ", 1)
        if what == "answered":
            answered.add(thing)
        else:
            assert thing not in answered, "asked again for what was answered"
            asked[thing] += 1
    needed = {line.split(" ", 1)[1] for line in whole_log.read_text("utf-8").splitlines()}
    assert set(asked) == needed
    again = asked.total() - len(asked)
    print(  # noqa: T201 - a measurement
        f"\n{kills} kills, {len(asked)} things asked, {again} of them twice or more, "
        f"all of which were under way at a kill"
    )
