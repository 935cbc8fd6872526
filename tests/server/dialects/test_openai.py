from __future__ import annotations

import pytest

from podium.server.dialects.content import metadata
from support.readers import refusal


@pytest.mark.parametrize(
    "value", [{"a": 1}, {"a" * 65: ""}, {"a": "b" * 513}, {str(i): "" for i in range(17)}, []]
)
def test_metadata_are_at_most_16_short_pairs(value: object) -> None:
    assert refusal(metadata, value, "metadata").reason == "invalid"
