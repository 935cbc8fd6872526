from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import podium.config
from podium import AsyncPodium, Podium, Pool, RulesConductor, ScriptedWorker, WorkerProfile
from podium.core.errors import ConfigError, UsageError
from podium.core.run import Run

POOL = """
[[worker]]
name = "one"
provider = "scripted"
options = { reply = "answer of one" }

[[worker]]
name = "two"
provider = "scripted"
options = { reply = "answer of two" }
"""
CONFIG = """
[conductor]
kind = "router"

[store]
path = "runs.db"
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a configuration file and a pool file, and nothing else on this machine."""
    (tmp_path / "podium.toml").write_text(CONFIG + POOL, "utf-8")
    (tmp_path / "pool.toml").write_text(CONFIG + POOL.replace("one", "other"), "utf-8")
    monkeypatch.setenv("PODIUM_CONFIG", str(tmp_path / "podium.toml"))
    return tmp_path


def ask(*args: Any, **kwargs: Any) -> Run:
    with Podium(*args, **kwargs) as podium:
        return podium.ask("why?")


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_configuration_file_is_read_by_its_path(directory: Path, as_path: type) -> None:
    file = as_path(directory / "podium.toml")
    for run in (ask(file), ask(settings=file)):
        assert (run.status, run.conductor, run.answer) == ("answered", "router", "answer of one")
    assert podium.config.load(file).pool.names == ("one", "two")


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_pool_file_replaces_the_workers_of_the_configuration(
    directory: Path, as_path: type
) -> None:
    run = ask(pool=as_path(directory / "pool.toml"))
    assert run.pool.names == ("other", "two")
    run = ask(settings=directory / "podium.toml", pool=as_path(directory / "pool.toml"))
    assert run.answer == "answer of other"


def test_a_conductor_is_chosen_by_its_name_over_a_configuration(directory: Path) -> None:
    assert ask(directory / "podium.toml", "rules").conductor == "rules"
    assert ask(conductor="two").conductor == "model(two)"


def scripted() -> list[ScriptedWorker]:
    return [ScriptedWorker("a", "answer of a"), ScriptedWorker("b", "answer of b")]


@pytest.mark.parametrize(
    ("conductor", "name"),
    [
        ("router", "router"),
        ("rules", "rules"),
        ("model", "model(a)"),
        ("b", "model(b)"),
        (None, "model(a)"),
        (RulesConductor(), "rules"),
    ],
)
def test_a_conductor_is_chosen_by_its_name_over_own_workers(conductor: Any, name: str) -> None:
    run = ask(workers=scripted(), conductor=conductor)
    assert (run.status, run.conductor) == ("answered", name)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"workers": scripted(), "conductor": "ruels"}, "unknown conductor 'ruels'; did you mean"),
        ({"workers": scripted(), "conductor": "fixed"}, r"use FixedConductor\(workflow\)"),
        ({"workers": scripted(), "conductor": "evolved"}, "use 'evolved:DIRECTORY'"),
        ({"workers": scripted(), "conductor": 7}, "conductor is a int; inherit from Conductor, or"),
        (
            {"workers": scripted(), "settings": "podium.toml"},
            "workers and settings exclude",
        ),
        (
            {"workers": scripted(), "pool": "pool.toml"},
            "workers and a pool file exclude",
        ),
        ({"workers": ["gpt-5"]}, "workers holds a str; give a list of workers"),
        ({"workers": "a.toml", "settings": "b.toml"}, "two configuration files are given"),
        ({"pool": Pool((WorkerProfile(name="a"),))}, "give workers as well, or a pool file"),
        ({"pool": 7}, "pool is a int; give a Pool or the path of a pool file"),
        ({"settings": {"worker": []}}, "settings is a dict; give Settings or the path of a file"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], problem: str) -> None:
    for kind in (Podium, AsyncPodium):
        with pytest.raises(UsageError, match=problem):
            kind(**arguments)


def test_settings_and_a_pool_file_exclude_each_other(directory: Path) -> None:
    settings = podium.config.load(directory / "podium.toml")
    with pytest.raises(UsageError, match="pool and settings both name workers"):
        Podium(settings=settings, pool=directory / "pool.toml")


def test_a_file_that_is_not_there_is_named(directory: Path) -> None:
    for arguments in ({"settings": "x.toml"}, {"pool": "x.toml"}, {"workers": "x.toml"}):
        with pytest.raises(ConfigError, match=r"^x\.toml: there is no such file"):
            ask(**arguments)
    with pytest.raises(ConfigError, match=r"^x\.toml: there is no such file"):
        podium.config.load("x.toml")


def test_an_unknown_conductor_over_a_configuration_is_named(directory: Path) -> None:
    with pytest.raises(UsageError, match="unknown conductor 'ruels'.*did you mean 'rules'"):
        ask(conductor="ruels")


def test_podium_has_the_signatures_and_docstrings_of_async_podium() -> None:
    import inspect

    for name in ("__init__", "ask", "run", "plan", "resume", "stream"):
        model, own = getattr(AsyncPodium, name), getattr(Podium, name)
        assert list(inspect.signature(own).parameters) == list(inspect.signature(model).parameters)
        assert own.__doc__ == model.__doc__
