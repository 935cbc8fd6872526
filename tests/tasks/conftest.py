from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.tasks import mathematics


@pytest.fixture
def data() -> Path:
    """A few items of each benchmark, laid out as benchmarks are passed around."""
    return Path(__file__).with_name("data")


@pytest.fixture(scope="session", autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    mathematics.close()
