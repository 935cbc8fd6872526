"""Commands that are stopped from outside, each as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.support import REPOSITORY, Podium, Vendor, perform_by
from podium.cli import session

Start = Callable[..., "subprocess.Popen[str]"]

QUESTION = "Compare tea and coffee"


@pytest.fixture
def pool(vendor: Vendor, tmp_path: Path) -> Path:
    """Two views and a lead who brings them together, and who hangs."""
    vendor.hangs = {"lead"}
    return vendor.pool("lead", "left", "right", directory=tmp_path)


def test_ctrl_c_keeps_the_run_and_resume_repeats_no_finished_step(
    start: Start, podium: Podium, vendor: Vendor, pool: Path
) -> None:
    process = start("ask", "--pool", pool, QUESTION)
    assert vendor.is_hanging.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "step 2 lead: cancelled: stopped before it was done" in out
    assert err.splitlines() == [err.strip()]
    hint = err.removeprefix("podium: interrupted; resume with: podium ").split()
    run_id = hint[2]
    assert podium("runs", "show", run_id, "--json").json["status"] == "interrupted"

    vendor.hangs.clear()
    vendor.released.set()
    ended = podium(*hint, "--json")
    assert (ended.code, ended.json["answer"]) == (0, "reply of lead")
    assert sorted(vendor.asked) == ["lead", "lead", "left", "right"]


def test_an_interrupted_run_is_still_one_json_object(
    start: Start, vendor: Vendor, pool: Path
) -> None:
    process = start("ask", "--json", "--pool", pool, QUESTION)
    assert vendor.is_hanging.wait(60)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "interrupted"


def test_a_run_that_was_killed_outright_can_be_resumed(
    start: Start, podium: Podium, vendor: Vendor, pool: Path
) -> None:
    process = start("ask", "--pool", pool, QUESTION)
    assert vendor.is_hanging.wait(60)
    for _ in range(1000):  # the second of the finished steps may still be on its way to the disk
        if len(podium("runs", "show", "last", "--json").json["steps"]) == 2:
            break
    process.kill()
    process.communicate(timeout=60)
    vendor.hangs.clear()
    vendor.released.set()
    assert podium("runs", "show", "last", "--json").json["status"] == "running"
    ended = podium("runs", "resume", "last", "--pool", pool, "--quiet")
    assert (ended.code, ended.out) == (0, "reply of lead\n")
    assert sorted(vendor.asked) == ["lead", "lead", "left", "right"]


def test_ctrl_c_while_several_runs_are_resumed_begins_no_other(
    start: Start, podium: Podium, vendor: Vendor, pool: Path, home: Path
) -> None:
    for _ in range(2):
        podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    perform_by("", home)
    process = start("runs", "resume", "--pool", pool, "--budget-calls", "3")
    assert vendor.is_hanging.wait(60)
    vendor.hangs.clear()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    vendor.released.set()
    assert process.returncode == 130
    assert vendor.asked.count("lead") == 1


def test_ctrl_c_in_a_conversation_stops_the_answer_and_not_the_conversation(
    start: Start, vendor: Vendor, pool: Path
) -> None:
    process = start("chat", "--pool", pool, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(f"{QUESTION}\n")
    process.stdin.flush()
    assert vendor.is_hanging.wait(60)
    process.send_signal(signal.SIGINT)
    vendor.hangs.clear()
    vendor.released.set()
    out, err = process.communicate("And who are you?\n", timeout=60)
    assert process.returncode == 0
    assert err.startswith("podium: interrupted; resume with: podium runs resume run_")
    assert out.endswith("\nreply of lead\n")


def test_a_closed_pipe_ends_the_command_quietly_and_keeps_the_run(
    start: Start, podium: Podium, vendor: Vendor, pool: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("ask", "--pool", pool, QUESTION, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")
    assert podium("runs", "list", "--json").json[0]["status"] == "interrupted"
    assert "lead" not in vendor.asked


def test_output_that_cannot_be_written_ends_in_one_line(
    start: Start, podium: Podium, pool: Path
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    process = start("ask", "--pool", pool, QUESTION, stdout=full)
    os.close(full)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == ("podium: cannot write the output: No space left on device; write it elsewhere\n")
    assert podium("runs", "list", "--json").json[0]["status"] == "interrupted"


def test_ctrl_c_during_the_imports_is_one_line(tmp_path: Path) -> None:
    package = tmp_path / "early" / "podium"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise KeyboardInterrupt\n", "utf-8")
    ended = subprocess.run(
        [sys.executable, "-P", REPOSITORY / "src" / "podium" / "__main__.py", "ask", "q?"],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "podium: interrupted\n"


def test_ctrl_c_before_there_is_a_run_is_one_line_without_a_hint(
    podium: Podium, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "fetch_weights", interrupted)
    ended = podium("ask", "--pool", pool, QUESTION)
    assert (ended.code, ended.out, ended.complaint) == (130, "", "interrupted")


def test_ctrl_c_in_an_evaluation_names_the_command_that_continues_it(
    start: Start, vendor: Vendor, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    tasks.write_text(json.dumps(task), "utf-8")
    vendor.hangs = {"slow"}
    pool = vendor.pool("quick", "slow", directory=tmp_path)
    command = ("eval", "run", tasks, "--pool", pool, "--strategy", "best-single")
    process = start(*command, "--output", tmp_path / "out")
    assert vendor.is_hanging.wait(60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "podium: interrupted; repeat the command to continue"
    vendor.hangs.clear()
    vendor.released.set()
    process = start(*command, "--output", tmp_path / "out")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert vendor.asked == ["quick", "slow", "slow"]
