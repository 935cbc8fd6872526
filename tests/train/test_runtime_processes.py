from __future__ import annotations

import pytest

from podium.train.training_log import is_main_process, process_count, process_index


def test_a_process_by_itself_is_the_first_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (process_index(), process_count(), is_main_process()) == (0, 1, True)


def test_a_process_among_others_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (process_index(), process_count(), is_main_process()) == (2, 4, False)
