"""Where Podium keeps its files on this machine.

Each system's usual places, unless `PODIUM_HOME` names one directory for everything. Nothing is
created here: whoever writes a file makes its directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_dir() -> Path:
    """What must not be lost: runs and local models."""
    return _home() or platformdirs.user_data_path("podium", appauthor=False)


def cache_dir() -> Path:
    """What can be made again."""
    home = _home()
    return home / "cache" if home else platformdirs.user_cache_path("podium", appauthor=False)


def config_file() -> Path:
    """The user's own configuration, for when the working directory has none."""
    home = _home()
    directory = home or platformdirs.user_config_path("podium", appauthor=False)
    return directory / "podium.toml"


def is_below_home(path: Path) -> bool:
    """Whether Podium chose where that lies, so that `PODIUM_HOME` moves it."""
    return any(path.absolute().is_relative_to(place) for place in (data_dir(), cache_dir()))


def _home() -> Path | None:
    """The directory that `PODIUM_HOME` names, if it names one."""
    home = os.environ.get("PODIUM_HOME", "").strip()
    return Path(home).expanduser().absolute() if home else None
