"""The vendors' translations of what clients had in their hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from podium.core.errors import RequestRefused
from podium.core.request import Message, Request, Text, Thinking, user

if TYPE_CHECKING:
    from workers.conftest import Hire, Vendor

FORGED = ["x", "7", "null", "[" * 100_000, '"signature"']


@pytest.mark.parametrize(
    ("provider", "api", "opaque"),
    [
        *(("anthropic", "", opaque) for opaque in [*FORGED, "[]", "{}", '{"signature": 7}']),
        *(("google", "", opaque) for opaque in [*FORGED, "[]"]),
        *(("openrouter", "", opaque) for opaque in [*FORGED, "{}"]),
        *(("openai", "responses", opaque) for opaque in [*FORGED, '{"type": "item_reference"}']),
    ],
)
async def test_thinking_that_no_provider_gave_is_refused_before_anything_is_sent(
    vendor: Vendor, hire: Hire, provider: str, api: str, opaque: str
) -> None:
    thought = Thinking("hm", opaque, "some-model")
    turns = (user("a"), Message("assistant", (thought, Text("b"))), user("c"))
    worker = hire(provider, api=api) if api else hire(provider)
    with pytest.raises(RequestRefused, match="send it back unchanged"):
        await worker.reply(Request(turns))
    assert not vendor.received
