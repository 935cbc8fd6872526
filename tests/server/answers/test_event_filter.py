from __future__ import annotations

from dataclasses import replace
from typing import Any

from podium.core.events import (
    Event,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
    ToolCallDelta,
)
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Usage
from podium.core.routing import RoutingRecord
from podium.core.run import Round, Run, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.answers.result import EventFilter, StreamSink

RUN = Run(
    id="run_1",
    question="Why?",
    status="running",
    pool=Pool((WorkerProfile(name="solo"),)),
    conductor="rules",
    created_at="2026-01-01T00:00:00.000+00:00",
)
NESTED = replace(RUN, id="run_2", depth=1)
ONE = Workflow((Step("solo", "Why?"),))
TWO = Workflow((Step("solo", "Think " * 100), Step("duo", "Answer.", (0,))))


class RunSink(StreamSink):
    """Records what it receives."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def open(self, run: str, *, stored: bool) -> None:
        self.said.append(("opened", run, stored))

    def start(self, usage: Usage) -> None:
        self.said.append(("start", usage))

    def progress(self, line: str) -> None:
        self.said.append(("progress", line))

    def thinking(self, text: str) -> None:
        self.said.append(("thinking", text))

    def text(self, text: str) -> None:
        self.said.append(("text", text))

    def tool_call(self, delta: Delta) -> None:
        self.said.append(("call", delta.call, delta.id, delta.name, delta.text))

    def choices(self, choices: Any) -> None:
        self.said.append(("choices", choices))

    def restart(self) -> None:
        self.said.append(("restart",))

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [item for item in self.said if item[0] in kinds]


def send(*events: Event) -> RunSink:
    sink = RunSink()
    watch = EventFilter(sink)
    for event in events:
        watch(event)
    return sink


def retried(sent_chars: int) -> StepRetried:
    return StepRetried("run_1", 0, 0, "solo", "broken off", 0.5, sent_chars)


def test_words_and_thinking_of_the_last_round_are_reported() -> None:
    said = send(
        RunStarted(RUN),
        RoundPlanned("run_1", Round(0, ONE)),
        StepDelta("run_1", 0, 0, "hmm", thinking=True),
        StepDelta("run_1", 0, 0, "yes"),
    )
    assert said.said[0] == ("opened", "run_1", True)
    assert said.of("thinking", "text") == [("thinking", "hmm"), ("text", "yes")]


def test_words_of_a_round_that_may_be_improved_upon_are_held_back() -> None:
    said = send(
        RunStarted(replace(RUN, max_rounds=2)),
        RoundPlanned("run_1", Round(0, ONE)),
        StepDelta("run_1", 0, 0, "perhaps"),
        RoundPlanned("run_1", Round(1, ONE)),
        StepDelta("run_1", 1, 0, "yes"),
    )
    assert said.of("text") == [("text", "yes")]


def test_a_confidently_routed_reply_is_streamed_at_once() -> None:
    routing = RoutingRecord(worker="solo", confidence=0.9, scores={}, quality_bias=0.5, router="ab")
    for round_, words in (
        (Round(0, ONE, routing=routing), [("text", "yes")]),
        (Round(0, ONE, routing=replace(routing, escalated=True)), []),
    ):
        said = send(
            RunStarted(replace(RUN, max_rounds=2)),
            RoundPlanned("run_1", round_),
            StepDelta("run_1", 0, 0, "yes"),
        )
        assert said.of("text") == words


def test_words_of_a_nested_run_are_reported_when_those_of_the_run_around_it_would_be() -> None:
    inner = (
        RunStarted(NESTED, ("run_1", 0)),
        RoundPlanned("run_2", Round(0, ONE)),
        StepDelta("run_2", 0, 0, "yes"),
    )
    last = send(RunStarted(RUN), RoundPlanned("run_1", Round(0, ONE)), *inner)
    assert last.of("text") == [("text", "yes")]
    first = send(
        RunStarted(replace(RUN, max_rounds=2)), RoundPlanned("run_1", Round(0, ONE)), *inner
    )
    assert first.of("text") == []


def test_a_tool_call_is_reported_in_any_round_as_it_ends_the_response() -> None:
    piece = Delta('{"x":', "tool_call", 0, "c1", "add")
    begun = (RunStarted(replace(RUN, max_rounds=2)), RoundPlanned("run_1", Round(0, ONE)))
    called = ToolCallDelta("run_1", 0, 0, piece)
    assert send(*begun, called).of("call") == [("call", 0, "call_1_c1", "add", '{"x":')]
    held = send(*begun, StepDelta("run_1", 0, 0, "perhaps"), called)
    assert held.of("call") == [], "the text before it is held back as well"


def test_an_answer_restarts_where_another_worker_replies_or_nothing_was_kept() -> None:
    begun = (RunStarted(RUN), RoundPlanned("run_1", Round(0, ONE)), StepDelta("run_1", 0, 0, "ye"))
    again = StepDelta("run_1", 0, 0, "s")
    assert len(send(*begun, retried(sent_chars=2), again).of("restart")) == 1, (
        "the first word is new"
    )
    assert len(send(*begun, retried(sent_chars=0), again).of("restart")) == 2
    nested = (RunStarted(NESTED, ("run_1", 0)), RoundPlanned("run_2", Round(0, ONE)))
    other = StepDelta("run_2", 0, 0, "no")
    assert len(send(*begun, *nested, other).of("restart")) == 2


def test_the_client_gets_the_values_and_the_run_keeps_placeholders() -> None:
    def restore(text: str) -> str:
        return text.replace("[e-mail 1]", "ada@example.com")

    sink, heard = RunSink(), list[Event]()
    watch = EventFilter(sink, broadcast=heard.append)
    ended = replace(RUN, answer="To [e-mail 1], see list[")
    done = StepRecord(0, 0, "solo", "Why?", (), "done", ended.answer or "", None, 0.0, 1.0)
    events: list[Event] = [
        RunStarted(RUN, None, restore),
        RoundPlanned("run_1", Round(0, ONE)),
        *(StepDelta("run_1", 0, 0, text) for text in ("To [e-", "mail 1], see list", "[")),
        StepDone("run_1", done),
        RunDone(ended),
    ]
    for event in events:
        watch(event)
    pieces = [text for _, text in sink.of("text")]
    assert pieces == ["To ", "ada@example.com, see list", "["]
    assert len(sink.of("restart")) == 1
    assert watch.run is ended
    assert heard == events


def test_each_action_is_reported_in_a_line() -> None:
    step = StepRecord(0, 0, "solo", "Think", (), "done", "hm", None, 0.0, 1.0, answered_by="trio")
    said = send(
        RunStarted(RUN),
        RoundPlanned("run_1", Round(0, TWO)),
        StepStarted("run_1", 0, 0, "solo", "the prompt"),
        retried(sent_chars=0),
        StepDone("run_1", step),
        StepDone("run_1", replace(step, status="failed", answered_by="")),
        RunStarted(NESTED, ("run_1", 1)),
        RoundPlanned("run_2", Round(0, ONE)),
        RoundPlanned("run_1", Round(1, None, accepts_answer=True)),
        RunDone(RUN),
    )
    plan, *others = [line for _, line in said.of("progress")]
    head, first, second = plan.split("\n")
    assert (head, second) == ("Planned 2 steps for solo, duo.", "2. duo: Answer.")
    assert first.startswith("1. solo: Think Think")
    assert first.endswith(" …")
    assert len(first) < 200
    assert others == [
        "Step 1: calling solo.",
        "Step 1: a call failed; retrying solo.",
        "Step 1: trio is done.",
        "Step 1: solo ended: failed.",
        "The answer was accepted.",
    ]
    assert "the prompt" not in str(said.said)


def test_the_run_is_there_when_it_has_ended_and_a_nested_one_is_not_it() -> None:
    watch = EventFilter()
    watch(RunStarted(RUN))
    watch(RunDone(NESTED))
    assert watch.run is None
    watch(RunDone(RUN))
    assert watch.run is RUN


def test_listeners_for_new_runs_are_called_first() -> None:
    begun: list[Run] = []
    watch = EventFilter(on_start=begun.append)
    watch(RunStarted(RUN))
    watch(RunStarted(NESTED, ("run_1", 0)))
    assert begun == [RUN]


def test_a_turn_is_reported_with_its_worker_and_role() -> None:
    said = send(RunStarted(RUN), RoundPlanned("run_1", Round(2, ONE, role="verifier")))
    assert said.of("progress") == [("progress", "Turn 3: solo is the verifier.")]
