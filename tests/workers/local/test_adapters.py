"""Adapters by the names that Podium ships them under."""

from __future__ import annotations

import re

import pytest

from podium._util.files import sha256_file
from podium.core.errors import ConfigError
from podium.workers.llamacpp import TEMPLATES
from podium.workers.local import sources, weights
from podium.workers.local import sources as adapters
from podium.workers.local.sources import DIRECTORY, embedded_adapter, embedded_adapters
from support.shipped import Ship, ship

__all__ = ["ship"]

SHIPPED = embedded_adapters()
MAX_BYTES = 30_000_000


# ---- those that are shipped


def test_every_file_is_in_the_manifest_and_what_the_manifest_says() -> None:
    assert {adapter.path for adapter in SHIPPED} == set(DIRECTORY.glob("*.gguf"))
    for adapter in SHIPPED:
        assert adapter.sha256 == sha256_file(adapter.path), adapter.name
        assert adapter.bytes == adapter.path.stat().st_size, adapter.name
        assert adapter.licence
        assert adapter.trained_by
        assert adapter.description


def test_every_adapter_has_a_base_that_podium_can_fetch_and_a_known_template() -> None:
    packaged = {model.name for model in sources.known_models()}
    assert {adapter.base for adapter in SHIPPED} <= packaged
    assert {adapter.template for adapter in SHIPPED} <= set(TEMPLATES)


def test_adapters_have_distinct_names_and_are_small() -> None:
    assert len({adapter.name for adapter in SHIPPED}) == len(SHIPPED)
    assert sum(adapter.bytes for adapter in SHIPPED) <= MAX_BYTES


# ---- by name


async def test_an_adapter_is_found_by_its_name_and_checked(ship: Ship) -> None:
    path = ship("etude-lists", b"GGUF and the rest", description="lists")
    found = weights.find("embedded/etude-lists")
    assert found.present
    assert found.path == path
    assert found.bytes == 17
    assert found.description == "lists"
    assert await weights.locate(found.name, offline=True) == path
    assert await weights.pull(found.name) == path
    assert embedded_adapter(found.name).template == "chatml"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("embedded/etude-list", "did you mean embedded/etude-lists?"),
        ("embedded/zebra", "there is embedded/etude-lists;"),
    ],
)
def test_a_name_that_is_not_shipped_says_which_are(ship: Ship, name: str, hint: str) -> None:
    ship("etude-lists")
    expected = f"embedded adapter not found: '{name}'; {hint} one of your own is named file:/path"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        weights.find(name)


def test_missing_shipped_adapter_is_reported(ship: Ship) -> None:
    with pytest.raises(
        ConfigError, match="embedded adapter not found: 'embedded/a'; none is shipped; "
    ):
        embedded_adapter("embedded/a")


async def test_a_file_that_is_missing_or_changed_is_refused_with_what_to_do(ship: Ship) -> None:
    path = ship("etude-lists")
    path.write_bytes(b"GGUF of another kind")
    with pytest.raises(ConfigError, match=r"etude-lists\.gguf has the sha256 .* was expected; rei"):
        await weights.locate("embedded/etude-lists")
    path.unlink()
    assert not weights.find("embedded/etude-lists").present
    assert weights.find("embedded/etude-lists").remedy == adapters.REMEDY
    with pytest.raises(ConfigError, match="embedded/etude-lists is not at .*; reinstall"):
        await weights.locate("embedded/etude-lists")
