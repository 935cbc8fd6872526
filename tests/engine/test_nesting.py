from __future__ import annotations

from dataclasses import replace

import pytest

from podium.conductors import FixedConductor
from podium.core.budget import Budget
from podium.core.errors import PromptTooLong, RequestRefused, WorkerError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request, ResponseOptions
from podium.core.run import Round, Run, RunStatus
from podium.core.workflow import Step, Workflow
from podium.engine.runner import ConductorWorker, Options, Runner
from podium.engine.step import nested_reply, reopen_last
from support.harness import FakeWorker


def nested(status: RunStatus, answer: str | None = None) -> Run:
    return Run(
        id="run_1",
        question="why?",
        status=status,
        pool=Pool((WorkerProfile(name="a"),)),
        conductor="test",
        created_at="2026-01-01T00:00:00+00:00",
        answer=answer,
        rounds=(Round(0, None, accepts_answer=True),),
    )


@pytest.mark.parametrize(
    ("status", "goes_on"),
    [
        *((ended, "interrupted") for ended in ("failed", "exhausted", "answered")),
        ("waiting", "waiting"),
        ("partial", "partial"),
    ],
)
def test_a_nested_run_that_ended_continues_when_its_step_is_resumed(
    status: RunStatus, goes_on: RunStatus
) -> None:
    before = nested("failed")
    assert reopen_last((before, nested(status))) == (before, nested(goes_on))
    assert reopen_last(()) == ()


def test_the_answer_of_a_nested_run_is_the_reply_of_its_step() -> None:
    assert nested_reply(nested("answered", "so")) == Reply("so", finish="length")


@pytest.mark.parametrize(("too_long", "kind"), [(False, WorkerError), (True, PromptTooLong)])
def test_a_nested_run_without_an_answer_is_a_failure_of_its_kind(
    too_long: bool, kind: type[WorkerError]
) -> None:
    run = replace(nested("failed"), error="nobody was there", context_exceeded=too_long)
    with pytest.raises(WorkerError, match="nobody was there") as raised:
        nested_reply(run)
    assert type(raised.value) is kind


def nesting(first: FakeWorker, second: FakeWorker) -> Runner:
    """A run of one step, which is a run of its own: the first worker, and then the second."""
    inner = Workflow((Step("first", "begin"), Step("second", "end", (0,))))
    return Runner(
        FixedConductor(Workflow((Step("conductor", "split it"),))),
        [first, second, ConductorWorker()],
        nested_conductor=FixedConductor(inner),
    )


async def test_finished_nested_steps_are_not_repeated_on_resume() -> None:
    failures = iter([RequestRefused("not now")])

    def first_time(request: Request) -> str | Exception:
        return next(failures, "1")

    first, second = FakeWorker("first"), FakeWorker("second", first_time, can=("json",))
    engine = nesting(first, second)
    number = Options(response_options=ResponseOptions(schema={"type": "integer"}))
    run = await engine.run("why?", options=number)
    assert run.status == "failed"
    again = await engine.resume(run)
    assert (again.status, again.answer) == ("answered", "1")
    assert (len(first.asked), len(second.asked)) == (1, 2)


async def test_a_nested_run_with_a_spent_budget_resumes_with_a_larger_one() -> None:
    first, second = FakeWorker("first"), FakeWorker("second", lambda _: "1", can=("json",))
    engine = nesting(first, second)
    number = ResponseOptions(schema={"type": "integer"})
    run = await engine.run("why?", options=Options(response_options=number, budget=Budget(calls=1)))
    assert (run.status, len(first.asked), len(second.asked)) == ("exhausted", 1, 0)
    again = await engine.resume(run, budget=Budget(calls=9))
    assert again.status == "answered"
    assert (len(first.asked), len(second.asked)) == (1, 1)
