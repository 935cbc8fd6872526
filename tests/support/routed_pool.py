"""Two scripted workers as a configuration names them, and the learned router that knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

WORKERS = """
[[worker]]
name = "cheap"
provider = "scripted"
model = "cheap-model"
options = { reply = "I am cheap." }

[[worker]]
name = "dear"
provider = "scripted"
model = "dear-model"
options = { reply = "I am dear." }
"""


@pytest.fixture
def routed(tmp_path: Path) -> Path:
    """A directory with `router.json`, which knows that `cheap` is as good as `dear` at sums, and
    cannot tell who wrote a play."""
    pytest.importorskip("numpy")
    from support.routing import small_router

    small_router().save(tmp_path / "router.json")
    return tmp_path
