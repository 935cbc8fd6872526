from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.support import MakePool, Podium

WriteJson = Callable[[Any], Path]


def step(worker: object = "a", subtask: str = "do it", access: object = ()) -> dict[str, Any]:
    return {"worker": worker, "subtask": subtask, "access": access}


@pytest.fixture
def pool(make_pool: MakePool) -> Path:
    return make_pool({"a": "from a", "b": "from b"})


def test_a_workflow_by_hand_is_carried_out(
    podium: Podium, pool: Path, write_json: WriteJson
) -> None:
    file = write_json({"steps": [step("a"), step("b", access="all")]})
    ended = podium("run", file, "--pool", pool, "--question", "why?")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "plan by fixed: 2 steps, chain"
    assert ended.out.endswith("\nfrom b\n")


def test_a_dash_reads_the_workflow_from_standard_input(
    podium: Podium, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"question": "why?", "steps": [step("b")]})
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    ended = podium("run", "-", "--pool", pool, "--quiet")
    assert (ended.code, ended.out) == (0, "from b\n")


def test_a_worker_may_be_named_by_its_id(podium: Podium, pool: Path, write_json: WriteJson) -> None:
    file = write_json({"question": "why?", "steps": [step(1)]})
    assert podium("run", file, "--pool", pool, "--quiet").out == "from b\n"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"steps": [step("c")]}, "'c'"),
        ({"steps": [step(access=[0])]}, "0"),
        ({"steps": [step(), step(access=[2]), step(access=[1])]}, "2"),
        ({"steps": []}, "write at least one step"),
        ({"steps": [step()] * 6}, "at most 5 are allowed; shorten it, or raise --max-steps"),
        ({"steps": [step(subtask=" ")]}, "subtask"),
        ({"steps": [{"worker": "a"}]}, "step 0 has no 'subtask'"),
        ({"stepz": []}, "'stepz'"),
        ([], "a workflow is an object"),
    ],
    ids=[
        "unknown worker",
        "reads itself",
        "cycle",
        "empty",
        "too long",
        "blank subtask",
        "missing key",
        "unknown key",
        "no object",
    ],
)
def test_a_workflow_that_cannot_be_carried_out_is_refused_before_anything_is_asked(
    podium: Podium, pool: Path, write_json: WriteJson, document: Any, reason: str
) -> None:
    ended = podium("run", write_json(document), "--pool", pool, "--question", "why?")
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.complaint
    assert podium("runs", "list", "--json").json == []


def test_max_steps_allows_longer_workflows(
    podium: Podium, pool: Path, write_json: WriteJson
) -> None:
    file = write_json({"question": "why?", "steps": [step()] * 6})
    assert podium("run", file, "--pool", pool, "--quiet", "--max-steps", "6").code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"steps": [{"worker": "a", "subtask": "x", "access": []}]}', "has no question"),
    ],
)
def test_a_file_that_is_no_workflow_is_refused(
    podium: Podium, pool: Path, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "w.json"
    file.write_text(text)
    ended = podium("run", file, "--pool", pool)
    assert ended.code == 2
    assert reason in ended.complaint


def test_a_missing_or_unreadable_file_is_named(podium: Podium, pool: Path, tmp_path: Path) -> None:
    assert "nowhere.json: there is no such file" in podium("run", "nowhere.json").complaint
    assert "cannot be read" in podium("run", tmp_path).complaint
    (tmp_path / "w.json").write_bytes(b"\xff\xfe{}")
    assert "is not JSON" in podium("run", tmp_path / "w.json").complaint
