from __future__ import annotations

import pytest

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile, check_excluded, excludable_names

WORKERS = (WorkerProfile(name="gpt", provider="openai"), WorkerProfile(name="mine"))


def test_workers_providers_and_servers_of_tools_can_be_excluded() -> None:
    assert excludable_names(WORKERS, ["search"]) == {"gpt", "openai", "mine", "mcp:search"}


@pytest.mark.parametrize("name", ["opanai", "", "search", "mcp:"])
def test_an_unknown_exclusion_is_rejected_with_the_known_names(name: str) -> None:
    known = excludable_names(WORKERS, ["search"])
    with pytest.raises(ConfigError, match="there is gpt, mcp:search, mine, openai"):
        check_excluded(frozenset({name, "gpt"}), known)
    assert check_excluded(frozenset({"gpt"}), known) == {"gpt"}
