from __future__ import annotations

import sys
from pathlib import Path

import pytest

from podium.core.errors import UsageError
from podium.evals.strategies.registry import is_function_name, load_function


@pytest.fixture(autouse=True)
def _paths_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that a command is started in becomes one to import from."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_module_or_a_file_with_a_function_is_a_name() -> None:
    assert is_function_name("mine:answer")
    assert is_function_name("my.package:answer")
    assert is_function_name("../there/mine.py:answer")


@pytest.mark.parametrize("name", ["mine", "moa:ann/system", "single:gpt-5", ":answer", "a b:c"])
def test_other_names_are_none(name: str) -> None:
    assert not is_function_name(name)


def test_a_function_comes_from_an_installed_module() -> None:
    assert load_function("json:dumps")([1]) == "[1]"


def test_a_function_comes_from_a_module_in_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ownwaysofanswering.py").write_text("def answer():\n    return 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])
    assert load_function("ownwaysofanswering:answer")() == 42


def test_a_function_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def answer():\n    return 42\n")
    assert load_function(f"{path}:answer")() == 42


def test_missing_parts_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def answer():\n    return 42\n\nAGE = 7\n")
    with pytest.raises(UsageError, match="did you mean 'answer'"):
        load_function(f"{path}:anser")
    with pytest.raises(UsageError, match="is int, not a function"):
        load_function(f"{path}:AGE")
    with pytest.raises(UsageError, match="no such file"):
        load_function("nowhere.py:answer")
    with pytest.raises(UsageError, match="cannot import 'no_such_module_here'"):
        load_function("no_such_module_here:answer")
    with pytest.raises(UsageError, match="expected module:function"):
        load_function("nothing")


def test_a_file_that_breaks_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("raise RuntimeError('not today')\n")
    with pytest.raises(UsageError, match="RuntimeError: not today"):
        load_function(f"{path}:answer")
