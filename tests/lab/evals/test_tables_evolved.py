"""Coordinators beside the conductor and the best single worker, over études that perfect workers
answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from evals.support import Knowing, oracle_cases, setup_of
from podium.conductors.evolved_turns import PARAMETERS
from podium.core.errors import ConfigError
from podium.evals.strategies import registry as by_name
from podium_lab.etudes import ROLES
from podium_lab.etudes.workers import oracle_workers
from podium_lab.evals.tables import (
    EvolvedTable,
    Learner,
    TrainingCost,
    learners_table,
    measure_evolved,
)
from podium_lab.evolution.coordinator import EvolvedConductor
from support.evolved import Reading, coordinator

N = 30
SEED = 7


@pytest.fixture
async def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvolvedTable:
    """One coordinator has translation work twice, the other asks misleading once."""
    choices = {"first": ("translation", 2), "other": ("misleading", 1)}
    for name, (_, turns) in choices.items():
        coordinator(ROLES, turns=turns, roles=()).save(tmp_path / name)

    def made(directory: Path) -> tuple[EvolvedConductor, None]:
        worker, turns = choices[directory.name]
        trained = coordinator(ROLES, turns=turns)
        return EvolvedConductor(trained, Reading((worker, "worker"), workers=ROLES)), None

    monkeypatch.setattr(by_name, "load_evolved_conductor", made)
    return await measure_evolved(
        setup_of(oracle_workers(), Knowing(oracle_cases(N, SEED))),
        [
            Learner("evolved", f"evolved:{tmp_path / 'first'}", TrainingCost(7.0, 40.0, 900, 12)),
            Learner("evolved, no roles", f"evolved:{tmp_path / 'other'}", note="cut off"),
        ],
        n=N,
        seed=SEED,
        concurrency=4,
        conductor=TrainingCost(minutes=15.5, rollouts=111_616, parameters=4_884_480),
    )


def test_every_learner_has_a_row_between_the_conductor_and_the_best_worker(
    table: EvolvedTable, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(table.document()))
    assert document["n"] == N
    conductor, first, other, best = document["rows"]
    assert [row["strategy"] for row in document["rows"]] == [
        "conductor", "evolved", "evolved, no roles", "best-single",
    ]  # fmt: skip
    assert (conductor["accuracy"], other["accuracy"]) == (1.0, 0.0)
    assert 0 < first["accuracy"] < first["one_skill"]["value"]
    assert (first["turns"], other["turns"], best["turns"]) == (2, 1, 1)
    assert (first["orchestration_tokens"], other["note"]) == (0, "cut off")
    assert str(tmp_path) not in json.dumps(document)


def test_each_row_reports_what_learning_took(table: EvolvedTable) -> None:
    conductor, first, other, best = table.document()["rows"]
    took = ("train_minutes", "parameters_trained", "evaluations")
    assert [conductor[key] for key in took] == [15.5, 4_884_480, 111_616]
    assert [first[key] for key in took] == [7.0, 12, 900]
    assert [other[key] for key in took] == [None, None, None]
    assert [best[key] for key in took] == [0, 0, 0]


def test_rows_are_held_against_the_conductor_and_the_first_coordinator(
    table: EvolvedTable,
) -> None:
    conductor, first, other, best = table.document()["rows"]
    assert "against_conductor" not in conductor
    assert "against_evolved" not in first
    assert first["against_conductor"]["lost"] == round(N * (1 - first["accuracy"]))
    assert other["against_evolved"]["value"] == -first["accuracy"]
    assert best["against_evolved"]["value"] == pytest.approx(best["accuracy"] - first["accuracy"])


def test_the_printed_table_has_the_same_figures(table: EvolvedTable) -> None:
    header, _, conductor, first, other, _ = learners_table(table.rows).splitlines()
    assert header.split(" | ")[-3:] == ["training minutes", "parameters trained", "evaluations |"]
    assert [line.split("|")[8].strip() for line in (header, first)] == ["errors", "0"]
    assert "| 15.5             | 4,884,480          | 111,616     |" in conductor
    assert "| 2.00  |" in first
    assert other.endswith("| –                | –                  | –           |")


async def test_a_coordinator_that_cannot_lead_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    coordinator(("ann", "bob")).save(tmp_path / "stranger")
    coordinator(ROLES).save(tmp_path / "damaged")
    (tmp_path / "damaged" / PARAMETERS).write_bytes(b"")
    conductor = Knowing(oracle_cases(N, SEED))
    for name, why in (("stranger", "removed: ann, bob"), ("damaged", "npy: cannot be read")):
        with pytest.raises(ConfigError, match=why):
            await measure_evolved(
                setup_of(oracle_workers(), conductor),
                [Learner("evolved", f"evolved:{tmp_path / name}")],
                n=N,
                seed=SEED,
                concurrency=4,
            )
    assert not conductor.planner.requests
