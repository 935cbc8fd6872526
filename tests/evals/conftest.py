from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evals.demonstration import demonstrate


@pytest.fixture(scope="session")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation with something of everything, hostile strings included."""
    return asyncio.run(demonstrate(tmp_path_factory.mktemp("measured") / "sevens"))
