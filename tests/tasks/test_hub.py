from __future__ import annotations

import importlib
from typing import Any

import pytest

from podium.tasks import readers as hub

utils = pytest.importorskip("huggingface_hub.utils")
pytest.importorskip("datasets")


class Session:
    """Answers, or raises what the hub's client would."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def head(self, address: str, *, timeout: float) -> None:
        assert (address[:4], timeout) == ("http", hub.PROBE_SECONDS)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("error", "answers"), [(None, True), (OSError("no route"), False), (RuntimeError(), False)]
)
def test_a_hub_answers_or_does_not(
    error: Exception | None, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utils, "get_session", lambda: Session(error))
    assert hub.is_hub_reachable() is answers


def test_offline_mode_makes_no_hub_request() -> None:
    clients: list[Any] = [
        importlib.import_module(name) for name in ("huggingface_hub.constants", "datasets.config")
    ]
    before = [client.HF_HUB_OFFLINE for client in clients]
    with hub.hub_offline():
        assert all(client.HF_HUB_OFFLINE for client in clients)
    assert [client.HF_HUB_OFFLINE for client in clients] == before
