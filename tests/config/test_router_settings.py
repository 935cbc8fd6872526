from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.config import RouterSettings, Settings, discover_settings, load
from podium.core.errors import ConfigError

Write = Callable[..., Path]

WORKER = """
[[worker]]
name = "a"
provider = "scripted"
"""


def settings(write: Write, text: str) -> Settings:
    return load(write(text + WORKER))


def test_without_a_router_there_is_none(write: Write) -> None:
    assert settings(write, "").mini is None


def test_a_router_is_counted_from_the_file_that_names_it(write: Write, tmp_path: Path) -> None:
    found = settings(write, '[mini]\nrouter = "routers/mine.json"\n')
    assert found.mini == RouterSettings(router=str(tmp_path / "routers/mine.json"))


def test_the_other_settings_are_as_documented(write: Write) -> None:
    found = settings(
        write,
        """
        [mini]
        router = "/srv/router.json"
        confidence = 0.4
        quality_bias = 0.9
        on_pool_change = "narrow"
        """,
    )
    assert found.mini == RouterSettings(
        router="/srv/router.json", confidence=0.4, quality_bias=0.9, on_pool_change="narrow"
    )


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('router = "r"\nconfidence = 1.5', "mini.confidence"),
        ('router = "r"\nquality_bias = -0.1', "mini.quality_bias"),
        ('router = "r"\non_pool_change = "ignore"', "mini.on_pool_change"),
        ('route = "r"', "mini.route"),
        ("quality_bias = 0.5", "mini.quality_bias has no effect without mini.router"),
    ],
)
def test_errors_in_the_table_are_named(write: Write, table: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings(write, f"[mini]\n{table}\n")


async def test_a_router_goes_with_its_workers(write: Write, tmp_path: Path) -> None:
    config = write('[mini]\nrouter = "mine.json"\n' + WORKER)
    other = tmp_path / "other.toml"
    other.write_text(WORKER.replace('"a"', '"b"'), "utf-8")
    cheaper = tmp_path / "cheaper.toml"
    cheaper.write_text("[budget]\ncalls = 3\n", "utf-8")
    assert (await discover_settings({}, config=config, pool=other)).mini is None
    assert (await discover_settings({}, config=config, pool=cheaper)).mini is not None
