"""The pictures of the pages: each there, in light and dark, light enough, and shown."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from podium.core.pool import Pool

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "screenshots.py"
PICTURES = sorted((ROOT / "docs" / "pictures").glob("page-*.png"))
NAMES = ("api", "chat", "experiments", "pool", "run", "runs", "spend")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_every_page_has_a_picture_in_light_and_dark() -> None:
    expected = {f"page-{name}{dark}.png" for name in NAMES for dark in ("", "-dark")}
    assert {picture.name for picture in PICTURES} == expected


def test_no_picture_is_heavy_and_all_are_shown(script: dict[str, Any]) -> None:
    shown = (ROOT / "docs" / "reference" / "pages.md").read_text("utf-8")
    for picture in PICTURES:
        assert picture.stat().st_size <= script["LARGEST_BYTES"], picture.name
        assert f'"../pictures/{picture.name}"' in shown


def test_the_plans_are_for_the_pool_that_is_pictured(script: dict[str, Any]) -> None:
    pool = Pool(tuple(worker.profile for worker in script["pool"]()))
    for plan in (script["PLAN"], script["OTHER_PLAN"]):
        assert {step.worker for step in plan.steps} <= set(pool.names)
