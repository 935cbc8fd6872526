from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def podium_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory for everything that Podium keeps."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    return tmp_path
