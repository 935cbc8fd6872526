from __future__ import annotations

import sys

import pytest

from podium._util.lab import lab_extra
from podium.core.errors import ConfigError
from podium.tasks import load_suite


def test_a_suite_of_the_lab_names_the_extra_if_the_lab_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "podium_lab", None)
    monkeypatch.delitem(sys.modules, "podium_lab.etudes", raising=False)
    monkeypatch.delitem(sys.modules, "podium_lab.etudes.tasks", raising=False)
    with pytest.raises(ConfigError, match=r"needs the extra lab .*pip install .*\[lab\]"):
        load_suite("etudes", limit=1)


def test_a_broken_import_of_podium_itself_is_not_taken_for_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"podium\.nowhere"), lab_extra():
        raise ModuleNotFoundError("No module named 'podium.nowhere'", name="podium.nowhere")
