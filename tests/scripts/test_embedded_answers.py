"""How often podium-mini is right on the embedded pool: what is asked, and how it is counted."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from podium.config import load
from podium.core.routing import RoutingRecord
from podium.core.run import Round
from podium.core.task import Task
from support.runs_on_record import kept_run

SCRIPT = Path(__file__).parents[2] / "scripts" / "embedded_answers.py"
POOL = """
[[worker]]
name = "anna"
provider = "scripted"
options = { reply = "forty-two" }
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_questions_are_of_several_shapes_and_the_same_every_time(
    script: dict[str, Any],
) -> None:
    tasks = script["_tasks"](30)
    assert len({task.kind for task in tasks}) > 1
    assert [task.question for task in tasks] == [task.question for task in script["_tasks"](30)]


async def test_right_answers_are_counted(script: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "podium.toml").write_text(POOL)

    async def is_two(answer: str) -> bool:
        return answer == "two"

    async def is_forty_two(answer: str) -> bool:
        return answer == "forty-two"

    tasks = [
        Task(id="a", question="What is 6 * 7?", grader=is_forty_two),
        Task(id="b", question="What is 1 + 1?", grader=is_two),
    ]
    results = await script["_measured"](load(tmp_path / "podium.toml"), "mini", tasks)
    assert results.startswith("1 of 2 right, 1.00 steps ")


@pytest.mark.parametrize("escalated", [True, False])
def test_what_a_router_leaves_to_the_conductor_is_counted(
    script: dict[str, Any], escalated: bool
) -> None:
    routed = RoutingRecord(
        worker="anna",
        confidence=0.4,
        scores={},
        quality_bias=0.5,
        router="0" * 12,
        escalated=escalated,
    )
    run = kept_run(rounds=(Round(0, None, routed=routed),))
    assert script["_is_passed_on"](run) is escalated
    assert not script["_is_passed_on"](kept_run())
