"""No worker ever receives the reply of a step outside its access."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core.run import Round, StepRecord
from podium.core.workflow import Workflow
from support.harness import EngineHarness, FakeWorker
from support.workflows import workflows


def secret(round_: int, index: int) -> str:
    return f"SECRET-{round_}-{index}-END"


@given(plan=workflows(), failing=st.sets(st.integers(0, 6)), second_round=st.booleans())
@settings(max_examples=300)
def test_a_worker_receives_the_replies_its_access_names_and_no_others(
    plan: Workflow, failing: set[int], second_round: bool
) -> None:
    def answer(request: object) -> str | Exception:
        text = request.messages[-1].text  # type: ignore[attr-defined]
        index = int(re.findall(r"Your subtask: subtask-(\d+)", text)[-1])
        return RuntimeError("out") if index in failing else secret(1, index)

    before = tuple(
        StepRecord(0, i, "a", f"old-{i}", (), "done", secret(0, i), None, 0, 1) for i in range(3)
    )
    engine = EngineHarness(watch=False)
    fakes = [FakeWorker(name, answer) for name in "abc"]
    execution = asyncio.run(
        engine.execute(
            plan,
            *fakes,
            round_=1,
            previous=(Round(0, plan, before),) if second_round else (),
        )
    )
    for index, step in enumerate(plan.steps):
        record = execution.records[index]
        if record.status == "skipped":
            continue
        allowed = {secret(1, i) for i in plan.reads(index) if i not in failing}
        allowed -= {secret(1, i) for i in range(7) if execution_lost(execution.records, i)}
        if second_round and step.access == "all":
            allowed |= {secret(0, i) for i in range(3)}
        assert set(re.findall(r"SECRET-\d-\d-END", record.prompt)) == allowed
    received = {text for fake in fakes for text in fake.asked}
    assert received == {r.prompt for r in execution.records.values() if r.status != "skipped"}


def execution_lost(records: dict[int, StepRecord], index: int) -> bool:
    return index in records and records[index].status != "done"
