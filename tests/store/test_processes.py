"""The store seen from several processes: one that dies, and several that write at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from podium.store.base import RunFilter
from podium.store.sql.run_store import SqlRunStore

PRELUDE = """
import asyncio, os, sys
from dataclasses import replace
from podium.core.events import RoundPlanned, RunDone, RunStarted, StepDone
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Round, Run, StepRecord, timestamp
from podium.store import open_store
from podium.store.journal import Journal
from podium.core.workflow import Step, Workflow

WORKFLOW = Workflow(tuple(Step("solo", f"part {n}", "all") for n in range(5)))
ROUND = Round(0, WORKFLOW)

def begun(run_id):
    return Run(id=run_id, question="Why?", status="running", conductor="fixed",
               pool=Pool((WorkerProfile(name="solo"),)), created_at=timestamp())

def done(n):
    return StepRecord(0, n, "solo", f"part {n}", "all", "done", f"reply {n}", None, 0.0, 1.0)
"""

DIES_IN_MID_RUN = """
async def main():
    store = await open_store(sys.argv[1])
    journal = Journal(store)
    journal.emit(RunStarted(begun("run_killed")))
    journal.emit(RoundPlanned("run_killed", ROUND))
    for n in range(3):
        journal.emit(StepDone("run_killed", done(n)))
    await journal.drain()
    os._exit(1)

asyncio.run(main())
"""

WRITES_MANY_RUNS = """
async def main():
    name = sys.argv[2]
    store = await open_store(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        journal = Journal(store)
        run = begun(f"run_{name}{number}")
        journal.emit(RunStarted(run))
        journal.emit(RoundPlanned(run.id, ROUND))
        for n in range(5):
            journal.emit(StepDone(run.id, done(n)))
        await journal.drain()
        steps = tuple(done(n) for n in range(5))
        journal.emit(RunDone(replace(run, status="answered", answer="Therefore.",
                                     rounds=(replace(ROUND, steps=steps),))))
        await journal.close()
        if journal.error:
            raise journal.error
    await store.close()

asyncio.run(main())
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_every_finished_step_survives_the_death_of_the_process(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    with start(DIES_IN_MID_RUN, str(file)) as process:
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (1, "")
    store = await SqlRunStore.open(file)
    run = await store.load("killed")
    assert run.status == "running"
    assert [step.reply for step in run.steps] == ["reply 0", "reply 1", "reply 2"]
    assert run.rounds[0].is_unfinished
    await store.close()


async def test_several_processes_make_one_file_and_write_to_it_at_once(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    processes = [start(WRITES_MANY_RUNS, str(file), name) for name in ("a", "b")]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    complaints = [process.communicate(timeout=60)[1] for process in processes]
    assert complaints == ["", ""]
    store = await SqlRunStore.open(file)
    assert len(await store.list(RunFilter(status="answered"), limit=100)) == 20
    for name in ("a", "b"):
        for number in range(10):
            assert len((await store.load(f"{name}{number}")).steps) == 5
    await store.close()
