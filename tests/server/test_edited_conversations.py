"""A conversation that its client edits gets the same answer with and without a stored run."""

from __future__ import annotations

from typing import Any

import pytest

from podium.server.answers import tiers
from podium.server.answers.conversation import Fingerprint
from support.edited_conversations import campaign


async def test_a_server_with_stored_runs_sends_workers_the_same_requests() -> None:
    done = await campaign(300, seed=1)
    assert done.findings == []
    assert done.edits >= 300
    assert done.resumed > 30, "some requests resume a run that waits"


@pytest.mark.parametrize(
    ("owner", "name"), [(Fingerprint, "of"), (tiers, "continues")], ids=["settings", "calls"]
)
async def test_a_run_that_is_resumed_with_another_conversation_is_found(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always: Any = Fingerprint("any", "thing") if name == "of" else True
    monkeypatch.setattr(owner, name, lambda *_: always)
    assert (await campaign(300, seed=1)).findings
