from __future__ import annotations

import pytest

from podium.train import processes


def test_a_process_by_itself_is_the_first_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (processes.index(), processes.count(), processes.is_first()) == (0, 1, True)


def test_a_process_among_others_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (processes.index(), processes.count(), processes.is_first()) == (2, 4, False)
