from __future__ import annotations

import subprocess
import sys

import pytest

from podium._util.process import is_alive, is_gone, this_process


def test_a_running_process_is_alive_and_an_ended_one_is_not() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from podium._util.process import *; print(this_process())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert is_alive(this_process())
    assert not is_alive(ended.stdout.strip())


def test_foreign_and_missing_processes_count_as_gone() -> None:
    assert not is_alive("another-machine:1")
    assert not is_alive("")


def test_a_process_of_another_machine_is_not_known_to_be_gone() -> None:
    machine = this_process().rpartition(":")[0]
    assert is_gone(f"{machine}:999999999")
    assert is_gone("")
    assert not is_gone(this_process())
    assert not is_gone("another-machine:1")


def test_a_machine_has_the_name_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    before = this_process()
    monkeypatch.setenv("PODIUM_REPLICA", "podium-0")
    assert this_process() == f"podium-0:{before.rpartition(':')[2]}"
    assert is_alive(this_process())
    assert is_gone("podium-0:999999999")
    assert not is_gone(f"{before.rpartition(':')[0]}:999999999"), "that is another one now"
