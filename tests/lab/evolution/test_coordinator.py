from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from podium.conductors.evolved_turns import PARAMETERS
from podium.core.errors import ConfigError
from podium_lab.evolution.coordinator import Coordinator, choose_index, shares
from support.evolved import described

SCALED = described(width=4, matrices=("m", "n"), ranks=(3, 2))
NUMBERS = np.arange(SCALED.size, dtype=np.float32)


def test_the_vector_holds_the_scales_and_then_the_rows_of_workers_and_roles() -> None:
    coordinator = Coordinator.blank(SCALED).with_parameters(NUMBERS)
    assert coordinator.scales == (("m", (0, 1, 2)), ("n", (3, 4)))
    assert coordinator.head.tolist()[0] == [5, 6, 7, 8]
    logits = coordinator.decide(np.array([1, 0, 0, 0], np.float32))
    assert (logits.workers.tolist(), logits.roles.tolist()) == ([5, 9], [13, 17, 21])


def test_a_blank_coordinator_has_no_preferences() -> None:
    blank = Coordinator.blank(described(width=4))
    assert blank.scales == ()
    assert not blank.decide(np.ones(4, np.float32)).workers.any()


@pytest.mark.parametrize("numbers", [NUMBERS[1:], NUMBERS.reshape(1, -1), NUMBERS * np.nan])
def test_numbers_that_do_not_fit_are_refused(numbers: Any) -> None:
    with pytest.raises(ConfigError, match=r"25 numbers, and here|infinite or none"):
        Coordinator(SCALED, numbers)


def test_saving_replaces_and_loading_restores(tmp_path: Path) -> None:
    first = Coordinator.blank(SCALED)
    directory = tmp_path / "runs" / "coordinator"
    first.save(directory)
    second = first.with_parameters(NUMBERS.astype(np.float64))
    second.save(directory)
    again = Coordinator.load(directory)
    assert again.description == SCALED
    assert again.parameters.dtype == np.float32
    assert again.parameters.tolist() == NUMBERS.tolist()
    assert again.fingerprint == second.fingerprint != first.fingerprint
    assert [path.name for path in directory.parent.iterdir()] == ["coordinator"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: path.write_bytes(b"no numbers"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "cannot be read"),
        (lambda path: np.save(path, NUMBERS[1:]), "has 25 numbers"),
        (lambda path: np.save(path, np.array(["a"] * 25)), "and these are <U1"),
        (lambda path: np.save(path, np.array([{}] * 25), allow_pickle=True), "cannot be read"),
    ],
)
def test_numbers_that_cannot_be_read_are_named(tmp_path: Path, spoil: Any, reason: str) -> None:
    directory = tmp_path / "coordinator"
    Coordinator.blank(SCALED).save(directory)
    spoil(directory / PARAMETERS)
    with pytest.raises(ConfigError, match=rf"parameters\.npy: .*{reason}"):
        Coordinator.load(directory)


def test_the_most_preferred_that_is_allowed_is_chosen_or_drawn_by_its_share() -> None:
    logits, allowed = np.array([1.0, 3.0, 2.0]), np.array([True, False, True])
    assert choose_index(logits, allowed) == 2
    parts = shares(logits, allowed)
    assert parts.tolist() == pytest.approx([0.26894, 0, 0.73106], abs=1e-5)
    generator = np.random.default_rng(3)
    drawn = [choose_index(logits, allowed, generator) for _ in range(300)]
    assert drawn.count(1) == 0
    assert drawn.count(2) / 300 == pytest.approx(parts[2], abs=0.08)
