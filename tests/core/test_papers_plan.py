"""The plan of the paper's figure, and the ways in which models write such plans: each parses,
prints as three lists, and runs."""

from __future__ import annotations

import pytest

from podium import AsyncPodium, FixedConductor, ModelConductor, ScriptedWorker, Step, Workflow
from podium.conductors.plan import parse, write
from podium.core.pool import Pool, WorkerProfile

FIGURE = """model_id = [2, 0]
subtasks = ["Solve the problem", "Check the solution and give the answer"]
access_list = [[], ["all"]]"""

WAYS = {
    "as in the figure": FIGURE,
    "thinking first": f"<think>model_id = [9]? No.</think>\nTwo steps will do.\n{FIGURE}",
    "in a fence": f"```python\n{FIGURE}\n```",
    "with bullets": "\n".join(f"- **{line.replace(' = ', '**: ')}" for line in FIGURE.split("\n")),
    "smart quotes": FIGURE.replace('["', "[“").replace('"]', "”]").replace('", "', "”, “"),
    "ids as strings": FIGURE.replace("[2, 0]", '["2", "0"]'),
    "dotted labels": FIGURE.replace("model_id", "model.id").replace("access_list", "access.list"),
}
POOL = Pool(tuple(WorkerProfile(name=name) for name in ("zero", "one", "two")))
MEANT = Workflow(
    (
        Step("two", "Solve the problem"),
        Step("zero", "Check the solution and give the answer", "all"),
    )
)


@pytest.mark.parametrize("text", WAYS.values(), ids=list(WAYS))
async def test_the_plan_parses_prints_and_runs(text: str) -> None:
    assert parse(text, POOL).workflow == MEANT
    assert write(MEANT, POOL) == FIGURE
    workers = [ScriptedWorker(name, f"reply of {name}") for name in POOL.names]
    planner = ScriptedWorker("planner", text)
    async with AsyncPodium(workers, ModelConductor(planner)) as podium:
        run = await podium.ask("What is 6 times 7?")
    assert (run.status, run.answer) == ("answered", "reply of zero")
    assert [step.worker for step in run.steps] == ["two", "zero"]
    assert "reply of two" in run.steps[1].prompt
    async with AsyncPodium(workers, FixedConductor(MEANT)) as podium:
        assert (await podium.ask("What is 6 times 7?")).answer == "reply of zero"
