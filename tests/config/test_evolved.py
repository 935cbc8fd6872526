from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.conductors.evolved_turns import FILE, CoordinatorDescription
from podium.config import Settings, load
from podium.core.errors import ConfigError

WORKERS = "".join(
    f'[[worker]]\nname = "{name}"\nprovider = "scripted"\noptions = {{ reply = "42" }}\n'
    for name in ("ann", "bob")
)


def trained(directory: Path, *workers: str) -> None:
    described = CoordinatorDescription(workers=workers, base="tiny", width=4, turns=3)
    (directory / "trained").mkdir()
    (directory / "trained" / FILE).write_text(json.dumps(described.document()))


def settings(directory: Path, conductor: str) -> Settings:
    file = directory / "podium.toml"
    file.write_text(f"[conductor]\n{conductor}\n{WORKERS}")
    return load(file)


EVOLVED = 'kind = "evolved"\ncoordinator = "trained"\n'


def test_the_directory_is_counted_from_the_file_and_says_how_many_turns(tmp_path: Path) -> None:
    trained(tmp_path, "bob", "ann")
    found = settings(tmp_path, EVOLVED)
    assert found.conductor.coordinator == tmp_path / "trained"
    assert (found.conductor.rounds, found.conductor.worker) == (3, None)
    assert settings(tmp_path, EVOLVED + "rounds = 7").conductor.rounds == 7
    assert found.warnings == ()


def test_a_pool_that_changed_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, "ann", "cid")
    with pytest.raises(ConfigError, match=r"added: bob; removed: cid\); train it again, or put"):
        settings(tmp_path, EVOLVED)


def test_missing_and_idle_workers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"conductor\.coordinator is missing"):
        settings(tmp_path, 'kind = "evolved"')
    with pytest.raises(ConfigError, match=r"trained/coordinator\.json: No such file"):
        settings(tmp_path, EVOLVED)
    with pytest.raises(ConfigError, match=r'conductor\.coordinator has no effect with kind = "rul'):
        settings(tmp_path, 'kind = "rules"\ncoordinator = "trained"')
    with pytest.raises(ConfigError, match=r'conductor\.temperature has no effect with kind = "evo'):
        settings(tmp_path, EVOLVED + "temperature = 0.5")
