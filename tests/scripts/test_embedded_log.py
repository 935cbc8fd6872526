"""The log of the embedded pool's router: what is asked of whom, and how it is written."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from podium_lab.etudes import FAMILIES

SCRIPT = Path(__file__).parents[2] / "scripts" / "embedded_log.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_every_family_is_asked_as_often_and_some_of_each_of_everyone(
    script: dict[str, Any],
) -> None:
    everyone = script["EVERYONE"]
    asked = list(script["_etudes"]())
    one = [(etude.families[0], who) for etude, who in asked if len(etude.steps) == 1]
    each = Counter(family for family, _ in one)
    assert each == dict.fromkeys(FAMILIES, script["OF_EACH_FAMILY"])
    to_all = Counter(family for family, who in one if who == everyone)
    assert to_all == dict.fromkeys(FAMILIES, script["PUT_TO_ALL"][0])
    assert all(who in (everyone, family) for family, who in one)
    assert {etude.split for etude, _ in asked} == {"train"}


def test_its_lines_are_such_as_routers_learn_from(script: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from podium.conductors.routing.router import read_log

    rows = [script["_row"]("Why?", worker, "tiny", 1.0) for worker in ("words", "lists")]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    outcomes = read_log([tmp_path / "log.jsonl"]).outcomes
    assert [(each.worker, each.reward) for each in outcomes] == [("words", 1.0), ("lists", 1.0)]
