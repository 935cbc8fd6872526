from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import pytest

from cli.support import Podium
from podium._util.files import Progress, no_progress
from podium.cli.session import NO_API_KEY
from podium.workers.local import weights
from podium.workers.local.sources import known_models

(MODEL,) = (model for model in known_models() if model.name == "smollm2-135m-instruct")


def place_weights(home: Path) -> Path:
    """A file of the right size in the place of the embedded model's weights."""
    path = home / "models" / MODEL.file
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(MODEL.bytes)
    record = {"name": MODEL.name, "sha256": MODEL.sha256, "source": "a test"}
    path.with_name(f"{path.name}.json").write_text(json.dumps(record), "utf-8")
    return path


def test_models_are_listed_with_whether_they_are_here(podium: Podium, home: Path) -> None:
    assert "not downloaded" in podium("models", "list").out
    path = place_weights(home)
    assert f"downloaded, {path}" in podium("models", "list").out
    listed = {one["name"]: one for one in podium("models", "list", "--json").json}
    assert listed[MODEL.name]["present"]
    assert listed[MODEL.name]["path"] == str(path)


def test_pulling_what_is_here_says_where_and_fetches_nothing(podium: Podium, home: Path) -> None:
    path = place_weights(home)
    ended = podium("models", "pull", MODEL.name)
    assert (ended.code, ended.out, ended.err) == (0, f"{path}\n", "")


def test_pulling_reports_in_one_line_that_it_fetches(
    podium: Podium, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pull(name: str, progress: Progress = no_progress) -> Path:
        return place_weights(home)

    monkeypatch.setattr(weights, "pull", pull)
    ended = podium("models", "pull", MODEL.name)
    assert ended.code == 0
    assert ended.err.splitlines() == [
        f"podium: downloading {MODEL.name} (98 MB), once",
        f"podium: {MODEL.name}: Apache-2.0; verified by its sha256; from a test",
    ]


def test_on_a_terminal_fetching_is_seen_as_a_bar(
    podium: Podium, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pull(name: str, progress: Progress = no_progress) -> Path:
        progress(46_000_000, 92_000_000)
        return place_weights(home)

    monkeypatch.setattr(weights, "pull", pull)
    monkeypatch.setattr("podium.cli.models.is_terminal", lambda stream: True)
    ended = podium("models", "pull", MODEL.name)
    assert (ended.code, ended.out) == (0, f"{home / 'models' / MODEL.file}\n")
    assert f"downloading {MODEL.name}, once" in ended.err
    assert "46.0/92.0 MB" in ended.err


def test_a_model_that_is_unknown_is_refused(podium: Podium) -> None:
    ended = podium("models", "pull", "smollm2-135m-instrukt")
    assert ended.code == 2
    assert f"did you mean {MODEL.name}?" in ended.complaint


def test_offline_the_first_question_says_how_to_get_the_weights(podium: Podium) -> None:
    ended = podium("ask", "--offline", "q?")
    assert ended.code == 2
    assert "podium models pull qwen2.5-coder-1.5b-instruct" in ended.complaint


@pytest.mark.parametrize("configuration", ["", "[conductor]\nmax_steps = 3\n"])
def test_without_a_key_the_first_question_says_once_that_the_pool_is_small(
    podium: Podium, monkeypatch: pytest.MonkeyPatch, configuration: str
) -> None:
    Path("podium.toml").write_text(configuration, "utf-8")

    async def pull(name: str, progress: Progress = no_progress) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "pull", pull)
    ended = podium("ask", "q?")
    assert ended.code == 130
    assert ended.err.count("a small model") == 1
    first = ended.err.splitlines()[0]
    assert first == f"podium: {NO_API_KEY}"
    assert len(first) < 100
    assert "a small model" not in podium("ask", "-q", "q?").err


@pytest.mark.parametrize("command", ["ask --pool tiny Hello", "pool check --pool tiny"])
def test_without_openmp_no_model_is_fetched(
    podium: Podium, home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(sys, "platform", "linux")
    ended = podium(*command.split())
    assert ended.code != 0
    assert "install the system package libgomp1" in ended.out + ended.err
    assert "downloading" not in ended.err
