"""A client's stream of a run, with redacted values restored."""

from __future__ import annotations

from podium import AsyncPodium, Guardrail, Redaction, ScriptedWorker
from podium.conductors import FixedConductor
from podium.core.events import Event, RunDone, RunStarted, StepDelta, StepDone, ToolCallDelta
from podium.core.request import Delta
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails.redaction import restore_events
from support.runs_on_record import kept_run, step_record

MAIL = "ada@example.com"
ONE = FixedConductor(Workflow((Step("echo", "Say it"),)))
GUARD = Guardrail("privacy", Redaction(restore=True), stages=("question",))


def restored(text: str) -> str:
    return text.replace("[e-mail 1]", MAIL)


def test_pieces_and_the_end_are_restored_and_thinking_is_left_alone() -> None:
    heard: list[Event] = []
    tell = restore_events(heard.append)
    run = kept_run(answer="To [e-mail 1] [no")
    tell(RunStarted(run, None, restored))
    for text in ("To [e-ma", "il 1] [", "no"):
        tell(StepDelta(run.id, 0, 0, text))
    tell(StepDelta(run.id, 0, 0, "[e-mail 1]", thinking=True))
    tell(StepDone(run.id, step_record(0)))
    tell(RunDone(run))
    words = [event.text for event in heard if isinstance(event, StepDelta) and not event.thinking]
    assert "".join(words) == f"To {MAIL} [no"
    thought = [event.text for event in heard if isinstance(event, StepDelta) and event.thinking]
    assert thought == ["[e-mail 1]"]
    ended = heard[-1]
    assert isinstance(ended, RunDone)
    assert ended.run.answer == f"To {MAIL} [no"


def test_pieces_of_tool_calls_are_held_back_as_arguments_are_restored_whole() -> None:
    heard: list[Event] = []
    tell = restore_events(heard.append)
    run = kept_run(answer="")
    tell(RunStarted(run, None, restored))
    tell(ToolCallDelta(run.id, 0, 0, Delta('{"to": "[e-', "tool_call", 0, "c1", "mail")))
    assert not any(isinstance(event, ToolCallDelta) for event in heard)


def test_without_anything_to_put_back_every_event_passes_as_it_is() -> None:
    heard: list[Event] = []
    tell = restore_events(heard.append)
    run = kept_run(answer="[e-mail 1]")
    events: list[Event] = [
        RunStarted(run),
        StepDelta(run.id, 0, 0, "[e-mail"),
        ToolCallDelta(run.id, 0, 0, Delta("{", "tool_call", 0, "c1", "mail")),
        StepDone(run.id, step_record(0)),
        RunDone(run),
    ]
    for event in events:
        tell(event)
    assert heard == events


async def test_the_stream_has_values_and_other_listeners_have_placeholders() -> None:
    worker = ScriptedWorker("echo", lambda request: f"You said {request.messages[-1].text}")
    events: list[Event] = []
    ended: Run | None = None
    async with AsyncPodium([worker], ONE, guardrails=[GUARD]) as podium:
        async for event in podium.stream(f"mail {MAIL}", emit=events.append):
            if isinstance(event, RunDone):
                ended = event.run
    assert ended is not None
    assert ended.answer is not None
    assert MAIL in ended.answer
    assert MAIL not in repr(events)
