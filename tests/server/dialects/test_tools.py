from __future__ import annotations

import pytest

from podium.server.dialects.tools import distinct, tool
from podium.server.refusal import Refusal


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 129, None, 1])
def test_a_tool_has_a_name_that_every_provider_takes(name: object) -> None:
    with pytest.raises(Refusal) as caught:
        tool(name, None, None, "tools.0")
    assert caught.value.field == "tools.0.name"


def test_a_tool_without_parameters_takes_none() -> None:
    found = tool("look", None, None, "tools.0")
    assert found.parameters == {"type": "object", "properties": {}}


def test_two_tools_of_one_name_are_refused() -> None:
    one = tool("look", None, None, "tools.0")
    with pytest.raises(Refusal, match="two tools are named 'look'"):
        distinct((one, one), "tools")
