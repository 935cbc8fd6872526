"""What the conductors' tests share: a caller that must not be used."""

from __future__ import annotations

import pytest

from podium.core.request import Reply, Request
from podium.core.worker import Caller, Worker


@pytest.fixture
def nobody() -> Caller:
    """A caller for conductors that ask no model: being called fails the test."""

    async def call(
        worker: Worker, request: Request, on_delta: object = None, on_retry: object = None
    ) -> Reply:
        pytest.fail(f"{worker.profile.name} was called, but no planning call was expected")

    return call
