"""An evolved coordinator as a strategy: by its directory, or as the configured conductor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from evals.support import case_of, setup_of
from podium.config import load
from podium.core.errors import ConfigError, UsageError
from podium.core.roles import Role
from podium.engine.runner import Options
from podium.evals.evaluation import Evaluation
from podium.evals.setup import open_setup
from podium.evals.strategies import registry as by_name
from podium.evals.strategies.registry import check_strategy, strategy_checksums
from podium.workers import ScriptedWorker
from podium_lab.evolution import hidden_states as reading
from podium_lab.evolution.coordinator import EvolvedConductor
from support.evolved import Reading, coordinator

WORKERS = [ScriptedWorker("ann", "42"), ScriptedWorker("bob", "ACCEPT")]
CASES = [case_of("six times seven?", "42", WORKERS)]
TURNS = Reading(("ann", "worker"), ("bob", "verifier"))


async def test_the_configured_coordinator_takes_its_turns() -> None:
    setup = setup_of(WORKERS, EvolvedConductor(coordinator(), TURNS))
    setup = replace(setup, options=Options(rounds=5))
    row = await Evaluation(setup, CASES, seed=0, concurrency=1).row("conductor")
    (sample,) = row.samples
    assert (sample.right, sample.accepted, sample.workers) == (True, True, ("ann", "bob"))
    assert sample.valid
    assert sample.roles == (Role.SOLVE, Role.VERIFY)


async def test_a_directory_is_a_strategy_with_the_turns_of_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = coordinator(turns=1)
    trained.save(tmp_path / "trained")
    name = f"evolved:{tmp_path / 'trained'}"

    def made(directory: Path) -> tuple[EvolvedConductor, None]:
        assert directory == tmp_path / "trained"
        return EvolvedConductor(trained, Reading(("ann", "thinker"))), None

    monkeypatch.setattr(by_name, "load_evolved_conductor", made)
    check_strategy(name, setup_of(WORKERS), CASES)
    row = await Evaluation(setup_of(WORKERS), CASES, seed=0, concurrency=1).row(name)
    assert (row.accuracy.value, row.samples[0].calls) == (1, 1)
    before = strategy_checksums([name])
    coordinator(("bob", "ann"), roles=()).save(tmp_path / "trained")
    assert strategy_checksums([name]) != before


def test_another_order_of_workers_or_more_turns_are_another_strategy(tmp_path: Path) -> None:
    name = f"evolved:{tmp_path}"
    seen = set()
    for trained in (coordinator(), coordinator(("bob", "ann")), coordinator(turns=2)):
        trained.save(tmp_path)
        seen.add(strategy_checksums([name])[name])
    assert len(seen) == 3


async def test_a_verifier_accepts_in_the_last_turn_that_there_is() -> None:
    for rounds, reply in ((2, "ACCEPT"), (3, "ACCEPT"), (2, "REVISE")):
        workers = [ScriptedWorker("ann", "42"), ScriptedWorker("bob", reply)]
        turns = Reading(("ann", "worker"), ("bob", "verifier"))
        setup = setup_of(workers, EvolvedConductor(coordinator(), turns))
        setup = replace(setup, options=Options(rounds=rounds))
        row = await Evaluation(setup, CASES, seed=0, concurrency=1).row("conductor")
        assert [sample.accepted for sample in row.samples] == [reply == "ACCEPT"]


def test_a_coordinator_that_cannot_lead_these_workers_is_refused(tmp_path: Path) -> None:
    coordinator(("ann", "cid")).save(tmp_path)
    with pytest.raises(ConfigError, match=r"added: bob; removed: cid\).* put the pool back$"):
        check_strategy(f"evolved:{tmp_path}", setup_of(WORKERS), CASES)
    with pytest.raises(UsageError, match="has to be trained first"):
        check_strategy("evolved", setup_of(WORKERS), CASES)
    with pytest.raises(ConfigError, match=r"none/coordinator\.json: No such file"):
        check_strategy(f"evolved:{tmp_path / 'none'}", setup_of(WORKERS), CASES)


async def test_another_coordinator_is_another_evaluation(tmp_path: Path) -> None:
    for package in reading.PACKAGES:
        pytest.importorskip(package)
    trained = coordinator()
    identities = []
    for numbers in (trained, trained.with_parameters(trained.parameters * 2)):
        numbers.save(tmp_path / "trained")
        text = '[conductor]\nkind = "evolved"\ncoordinator = "trained"\n'
        for name in ("ann", "bob"):
            text += f'[[worker]]\nname = "{name}"\nprovider = "scripted"\n'
            text += 'options = { reply = "42" }\n'
        (tmp_path / "podium.toml").write_text(text)
        async with open_setup(load(tmp_path / "podium.toml"), {}) as setup:
            identities.append(setup.fingerprint)
    assert len(set(identities)) == 2
