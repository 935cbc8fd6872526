"""Settings of all tests: property tests use the same examples each time and have no deadline; the
fixture `postgres` is a real server. The collected tests are a million objects, so they are frozen
out of garbage collection."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.postgres import programs, running_postgres
from support.postgres import MISSING, Postgres

settings.register_profile(
    "podium",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("podium")

gc.disable()

# Before a test loads numpy, as `podium` has it: on a busy machine the threads of the linear algebra
# wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A model server that happens to run here is no part of the tests, nor of the programs they start.
os.environ["PODIUM_LOCAL_SERVERS"] = "off"


def pytest_collection_finish() -> None:
    """All tests are there, and stay to the end: from here on it is the garbage of tests alone."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres that runs for as long as this process of pytest does."""
    if programs() is None:
        pytest.skip(MISSING)
    with running_postgres() as server:
        yield Postgres(server.directory)
