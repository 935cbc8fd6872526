"""The real weights of the embedded model, fetched once a machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podium.core.errors import PodiumError
from podium.workers.local import weights

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Where the weights lie. Without them the test is skipped, and says why."""
    try:
        return asyncio.run(weights.locate(MODEL))
    except PodiumError as error:
        pytest.skip(f"NO REAL MODEL WAS TESTED: {error}")
