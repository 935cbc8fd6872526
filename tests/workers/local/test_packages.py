import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.workers.local import packages

DIRECTORY = Path("/downloads")


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without pip, as uv makes them."""
    real = importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == "pip" else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_pip_downloads_where_this_environment_has_it() -> None:
    command = packages.download_command("tiny==1.0", DIRECTORY)
    assert command[:5] == (sys.executable, "-P", "-m", "pip", "download")
    assert "--no-deps" in command
    assert command[-3:] == ("--dest", "/downloads", "tiny==1.0")


@pytest.mark.usefixtures("no_pip")
def test_uv_downloads_where_there_is_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_uv", lambda: "/bin/uv")
    command = packages.download_command("tiny==1.0", DIRECTORY)
    assert command[:3] == ("/bin/uv", "pip", "install")
    assert "--no-deps" in command
    assert command[command.index("--target") + 1] == "/downloads"


@pytest.mark.usefixtures("no_pip")
def test_the_pip_that_python_carries_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_uv", lambda: None)
    monkeypatch.setattr(packages, "_bundled_pip", lambda: "/lib/pip-25.whl")
    command = packages.download_command("tiny==1.0", DIRECTORY)
    assert command[:3] == (sys.executable, "/lib/pip-25.whl/pip", "download")


@pytest.mark.usefixtures("no_pip")
def test_with_no_installer_at_all_the_error_says_to_install_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "_uv", lambda: None)
    monkeypatch.setattr(packages, "_bundled_pip", lambda: None)
    with pytest.raises(ConfigError, match="neither pip nor uv is here to download tiny=="):
        packages.download_command("tiny==1.0", DIRECTORY)
