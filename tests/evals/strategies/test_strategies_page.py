"""The page about strategies: what it says of names and of code holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evals.support import case_of, setup_of
from podium.evals.evaluation import Evaluation
from podium.evals.strategies.registry import ROUTER, STRATEGIES
from podium.workers.scripted import ScriptedWorker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "strategies.md").read_text("utf-8")


@pytest.mark.parametrize("name", [*STRATEGIES, ROUTER])
def test_every_strategy_is_on_the_page(name: str) -> None:
    assert re.search(rf"`{name}(:FILE)?`", PAGE)


async def test_the_strategy_on_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "mine.py"
    path.write_text(code)
    workers = [
        ScriptedWorker("ann", "41"),
        ScriptedWorker("ben", lambda request: "42" if "answered: 41" in request.text else "?"),
    ]
    cases = [case_of("Six times seven?", "42", workers)]
    row = await Evaluation(setup_of(workers), cases, seed=0, concurrency=1).row(f"{path}:checked")
    assert (row.accuracy.value, row.samples[0].workers) == (1, ("ann", "ben"))
