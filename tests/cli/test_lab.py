"""The table of evolved coordinators from the command line: over workers that are scripted, read by
a tiny model of random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.support import Podium
from podium.conductors.evolved_turns import ROLES as TURN_ROLES
from podium.conductors.evolved_turns import Description
from podium.core.errors import UsageError
from podium_lab.cli import read_coordinators, shortest_tail
from podium_lab.etudes import ROLES
from podium_lab.evals.tables import read_training_cost
from support.tiny_model import HIDDEN, one_thread, tiny_model

pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from podium_lab.evolution.coordinator import Coordinator

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("base")))


def trained(directory: Path, base: str, *, stopped_at: int | None = None, **evolve: Any) -> Path:
    """What `podium lab evolve` leaves, of a training that is finished or was stopped."""
    settings = {"steps": 4, "method": "cma-es", "roles": True, "token": "penultimate"} | evolve
    place = directory
    if stopped_at is not None:
        place = directory / "checkpoints" / f"checkpoint-{stopped_at}"
    described = Description(
        workers=ROLES,
        base=base,
        width=HIDDEN,
        roles=TURN_ROLES if settings["roles"] else (),
        turns=2,
    )
    Coordinator.blank(described).save(place / "coordinator")
    if stopped_at is not None:
        (place / "trainer_state.json").write_text("{}", "utf-8")
    for name, document in (
        ("recipe.json", {"recipe": {"evolve": settings}}),
        ("summary.json", {"seconds": 90.0, "rollouts": 1200}),
    ):
        (directory / name).write_text(json.dumps(document), "utf-8")
    return directory


def test_one_command_makes_the_table_of_finished_and_interrupted_trainings(
    podium: Podium, role_pool: Path, tmp_path: Path, base: str
) -> None:
    whole = trained(tmp_path / "whole", base)
    cut = trained(tmp_path / "cut", base, stopped_at=3, roles=False, directions=5)
    file = tmp_path / "results" / "table.json"
    ended = podium(
        *("lab", "evolved-table", whole, cut, "--pool", role_pool),
        *("--training", whole, "--limit", "6", "--seed", "7", "-o", file),
    )
    assert ended.code == 0, ended.err
    document = json.loads(file.read_text("utf-8"))
    assert (document["n"], document["seed"], document["pool"]) == (6, 7, "pool.toml")
    conductor, first, other, _ = document["rows"]
    assert other["strategy"] == "evolved, directions 5, no roles"
    assert other["note"] == "interrupted after 3 of 4 training steps"
    assert (first["turns"], other["turns"]) == (2, 2)
    assert first["parameters_trained"] == 12 * HIDDEN
    assert other["parameters_trained"] == 9 * 5
    for row in (conductor, first, other):
        assert (row["train_minutes"], row["evaluations"]) == (1.5, 1200)
    assert str(tmp_path) not in json.dumps(document)
    printed = [line.split(" | ")[0].strip("| ") for line in ended.out.splitlines()]
    assert [name for name in printed if name in {row["strategy"] for row in document["rows"]}] == [
        row["strategy"] for row in document["rows"]
    ]


def test_rows_are_named_by_what_their_recipes_depart_in(tmp_path: Path, base: str) -> None:
    made = (
        trained(tmp_path / "a", base, directions=5),
        trained(tmp_path / "b", base, directions=5, token="last"),
        trained(tmp_path / "c", base, directions=5, method="random", sigma=0.5),
        trained(tmp_path / "d", base),
        trained(tmp_path / "e", base),
        trained(tmp_path / "f", base, directions=5, matrices=["w"]),
    )
    assert [learner.name for learner in read_coordinators(made)] == [
        "evolved",
        "evolved, last token",
        "evolved, random search, sigma 0.5",
        "evolved, every number by itself (d)",
        "evolved, every number by itself (e)",
        "evolved, matrices ['w']",
    ]


def test_rows_that_depart_in_nothing_are_distinguished_by_where_they_lie(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/run", "b/run", "b/other"):
        trained(tmp_path / name, base)
    monkeypatch.chdir(tmp_path / "b" / "other")
    made = (tmp_path / "a" / "run", Path("../run"), Path())
    assert [learner.name for learner in read_coordinators(made)] == [
        "evolved (a/run)",
        "evolved (b/run)",
        "evolved (other)",
    ]


def test_of_two_paths_one_may_end_as_the_other_begins() -> None:
    places = [Path("/run"), Path("/a/run"), Path("/b/a/run")]
    assert [str(shortest_tail(place, places)) for place in places] == [
        "/run",
        "/a/run",
        "b/a/run",
    ]


def test_a_training_that_is_named_twice_is_refused(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run", base)
    monkeypatch.chdir(tmp_path)
    for read in (read_coordinators, read_training_cost):
        with pytest.raises(UsageError, match=r"run is named 2 times; name each training once"):
            read([run, Path("run")])


def test_a_directory_in_the_tables_place_is_reported_before_anything_is_measured(
    podium: Podium, role_pool: Path, tmp_path: Path, base: str
) -> None:
    run = trained(tmp_path / "run", base)
    ended = podium("lab", "evolved-table", run, "--pool", role_pool, "-o", tmp_path)
    assert ended.code == 2
    assert f"file '{tmp_path}' is a directory" in ended.complaint


def test_what_is_damaged_is_reported_in_one_line(
    podium: Podium, role_pool: Path, tmp_path: Path, base: str
) -> None:
    ended = podium("lab", "evolved-table", trained(tmp_path, base, steps="x"), "--pool", role_pool)
    assert ended.code == 2
    assert "[evolve]: steps: expected a whole number, got the text 'x'" in ended.complaint


def test_a_directory_without_a_coordinator_is_refused(
    podium: Podium, role_pool: Path, tmp_path: Path
) -> None:
    ended = podium("lab", "evolved-table", tmp_path, "--pool", role_pool)
    assert ended.code == 2
    assert "name the directory of a training by `podium lab evolve`" in ended.complaint
