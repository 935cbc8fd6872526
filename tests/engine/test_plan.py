"""Planning alone: checks, events and costs."""

from __future__ import annotations

import pytest

from podium.cli.session import LinePrinter
from podium.conductors import FixedConductor
from podium.core.errors import UsageError
from podium.core.events import Event, RoundPlanned, RunStarted
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails import Guardrail, Redaction
from podium.engine.runner import Runner
from podium.workers import ScriptedWorker

PLAN = Workflow((Step("a", "Answer it."),))


def runner(**more: object) -> Runner:
    return Runner(FixedConductor(PLAN), [ScriptedWorker("a", ["x"])], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", ["", "  \n"])
async def test_an_empty_question_is_rejected(question: str) -> None:
    with pytest.raises(UsageError, match="the question is empty"):
        await runner().plan(question)


async def test_a_plan_is_emitted_under_the_id_of_a_started_run() -> None:
    events: list[Event] = []
    round_ = await runner().plan("How old is Ann?", emit=events.append)
    started, planned = events
    assert isinstance(started, RunStarted)
    assert started.run.question == "How old is Ann?"
    assert planned == RoundPlanned(started.run.id, round_)
    assert started.run.id.startswith("run_")


async def test_a_redacted_question_is_emitted_as_redacted() -> None:
    events: list[Event] = []
    guardrail = Guardrail("privacy", Redaction(), stages=("question",))
    await runner(guardrails=[guardrail]).plan("Write to ada@example.com", emit=events.append)
    assert isinstance(events[0], RunStarted)
    assert events[0].run.question == "Write to [e-mail 1]"


async def test_the_terminal_view_takes_the_events_of_a_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await runner().plan("How old is Ann?", emit=LinePrinter().show)
    assert "Answer it." in capsys.readouterr().out
