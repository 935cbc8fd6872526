"""The example of docs/reference/conductors.md, as a reader would run it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from podium.conductors import Conductor, PlanningContext
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Round, StepRecord
from podium.core.worker import Caller
from podium.core.workflow import Shape, Workflow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conductors.md"


def example() -> Conductor:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.S | re.M)
    names: dict[str, Any] = {}
    exec(code, names)
    conductor = names["SecondOpinion"]()
    assert isinstance(conductor, Conductor)
    return conductor


def checked(workflow: Workflow, verdict: str) -> Round:
    step = workflow.steps[1]
    record = StepRecord(
        0, 1, step.worker, step.subtask, step.access, "done", verdict, None, 0.0, 1.0
    )
    return Round(0, workflow, (record,))


async def test_the_documented_conductor_plans_until_the_checker_is_content(
    nobody: Caller,
) -> None:
    conductor = example()
    pool = Pool((WorkerProfile(name="author"), WorkerProfile(name="checker")))
    context = PlanningContext(question="Why?", pool=pool)
    first = await conductor.plan(context, nobody)
    assert first.workflow is not None
    assert [step.worker for step in first.workflow.steps] == ["author", "checker"]
    assert first.workflow.shape is Shape.CHAIN

    unhappy = replace(context, rounds=(checked(first.workflow, "I disagree: 4"),))
    assert (await conductor.plan(unhappy, nobody)).workflow == first.workflow
    content = replace(context, rounds=(checked(first.workflow, "It is 4"),))
    assert (await conductor.plan(content, nobody)).workflow is None


def test_every_kind_has_its_row_on_the_page() -> None:
    from podium.conductors import KINDS

    page = PAGE.read_text("utf-8")
    for kind in KINDS:
        assert f"| `{kind}` |" in page
