from pathlib import Path

import platformdirs
import pytest

from podium._util import files as paths


def test_podium_home_holds_everything_when_it_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    assert paths.data_dir() == tmp_path
    assert paths.cache_dir() == tmp_path / "cache"
    assert paths.config_file() == tmp_path / "podium.toml"


@pytest.mark.parametrize("unset", [None, "", "  "])
def test_without_podium_home_each_kind_of_file_has_the_systems_usual_place(
    monkeypatch: pytest.MonkeyPatch, unset: str | None
) -> None:
    if unset is None:
        monkeypatch.delenv("PODIUM_HOME", raising=False)
    else:
        monkeypatch.setenv("PODIUM_HOME", unset)
    assert paths.data_dir() == platformdirs.user_data_path("podium", appauthor=False)
    assert paths.cache_dir() == platformdirs.user_cache_path("podium", appauthor=False)
    assert paths.config_file().parent == platformdirs.user_config_path("podium", appauthor=False)


def test_podium_home_may_start_with_a_tilde_or_be_relative(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PODIUM_HOME", "~/music")
    assert paths.data_dir() == Path.home() / "music"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", "here")
    assert paths.data_dir() == tmp_path / "here"
