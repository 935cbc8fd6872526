"""Prompt injection is contained: whatever a worker replies, no step receives more than its access
names, no step is added or changed, no tool changes hands, and no budget grows. What a model makes
of the words that it may read is another matter, and nothing here can promise it.

Each attack is run beside an innocent reply: all that may differ is the one text between its tags.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from podium.conductors import FixedConductor, ModelConductor
from podium.conductors.plan import write
from podium.conductors.prompt import Prompt, PromptStyle
from podium.core.budget import Budget
from podium.core.conductor import Conductor, PlanningContext
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import (
    Message,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    user,
)
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker, Options, Runner
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.workers.scripted import ScriptedWorker
from support.attacks import CALLS, TEXTS
from support.harness import FakeWorker
from support.rounds import answered
from support.serving import application, serving

INNOCENT: Final = "an innocent reply"
QUESTION: Final = "Why is the sky blue?"
BUDGET: Final = Budget(calls=20, tokens=100_000)

TOPOLOGIES: Final = {
    "chain": Workflow(
        (Step("thief", "s0"), Step("a", "s1", (0,)), Step("b", "s2", (1,)), Step("a", "s3", (2,)))
    ),
    "join": Workflow(
        (Step("a", "s0"), Step("thief", "s1"), Step("b", "s2"), Step("a", "s3", (0, 1, 2)))
    ),
    "tree": Workflow(
        (Step("thief", "s0"), Step("a", "s1"), Step("b", "s2", (0,)), Step("a", "s3", (1, 2)))
    ),
    "nobody reads it": Workflow((Step("thief", "s0"), Step("a", "s1"), Step("b", "s2", (1,)))),
    "all": Workflow((Step("a", "s0"), Step("thief", "s1", "all"), Step("b", "s2", "all"))),
}


@dataclass
class FakeWorkers:
    """Workers who all write down what they were asked; one of them replies as it likes."""

    reply: str
    asked: dict[str, Request] = field(default_factory=dict)

    def act(self, request: Request) -> str:
        step = re.findall(r"Your subtask: (\w+)$|\Z", request.messages[-1].text, re.MULTILINE)
        own = [subtask for subtask in step if subtask][-1]
        assert own not in self.asked, "a step is asked once"
        self.asked[own] = request
        return f"REPLY-{own}"

    def steal(self, request: Request) -> str:
        self.act(request)
        return self.reply

    def runner(self, conductor: Conductor, inner: Workflow | None = None) -> Runner:
        fakes = [
            FakeWorker("thief", self.steal),
            FakeWorker("a", self.act),
            FakeWorker("b", self.act),
        ]
        nested = None if inner is None else FixedConductor(inner)
        return Runner(
            conductor,
            [*fakes, ConductorWorker()],
            call_policy=CallPolicy(RetryPolicy(attempts=1)),
            nested_conductor=nested,
        )


async def performed(
    plan: Workflow, reply: str, inner: Workflow | None = None
) -> tuple[Run, dict[str, Request]]:
    fakes = FakeWorkers(reply)
    runner = fakes.runner(FixedConductor(plan), inner)
    run = await runner.run(QUESTION, options=Options(budget=BUDGET))
    return run, fakes.asked


def frame(prompt: str) -> tuple[str, list[str]]:
    """A prompt without what stands between its own tags, and that apart, as a reader that is easily
    taken in reads it: whatever looks like an end is one. Podium's tags come first, so it is they
    that say which mark there is."""
    mark = re.search(r"<(?:question|answer|subtask)(-[0-9a-f]{12}|)[> ]", prompt)
    assert mark is not None, prompt
    section = re.compile(
        rf'<(question|subtask|reply|answer){mark[1]}( step="[^"]*")?>(.*?)'
        rf"[<＜][\s/\u200b\u2060]*\1{mark[1]}[^>＞]*[>＞]",
        re.DOTALL | re.IGNORECASE,
    )
    inside = [found[2].removeprefix("\n").removesuffix("\n") for found in section.findall(prompt)]
    return section.sub(r"<\1\2>", prompt), inside


def shape(run: Run) -> list[tuple[str, str, object, str]]:
    """What was planned and how each step ended."""
    return [(step.worker, step.subtask, step.access, step.status) for step in run.steps]


@pytest.mark.parametrize("attack", TEXTS.values(), ids=TEXTS.keys())
async def test_a_reply_reaches_only_the_steps_that_may_read_it_as_one_text(
    attack: str,
) -> None:
    for plan in TOPOLOGIES.values():
        (innocent, before), (attacked, after) = await asyncio.gather(
            performed(plan, INNOCENT), performed(plan, attack)
        )
        assert shape(attacked) == shape(innocent)
        assert [step[:3] for step in shape(attacked)] == [
            (step.worker, step.subtask, step.access) for step in plan.steps
        ]
        assert (len(attacked.rounds), attacked.status) == (1, "answered")
        assert (attacked.budget, attacked.spent.calls) == (BUDGET, len(plan))
        thief = [step.worker for step in plan.steps].index("thief")
        for index, step in enumerate(plan.steps):
            prompt, usual = (asked[step.subtask].messages[-1].text for asked in (after, before))
            if thief not in plan.reads(index):
                assert prompt == usual
                continue
            assert frame(prompt)[0] == frame(usual)[0]
            assert frame(prompt)[1] == expected_sections(plan, index, attack)


def expected_sections(plan: Workflow, index: int, attack: str) -> list[str]:
    """Each pair that the step may read, and the question: last in the final step, else first."""
    sections = []
    for read in plan.reads(index):
        step = plan.steps[read]
        sections += [step.subtask, attack if step.worker == "thief" else f"REPLY-{step.subtask}"]
    is_final = index == len(plan) - 1
    return [*sections, QUESTION] if is_final else [QUESTION, *sections]


OUTER: Final = {
    "reads it": (Step("thief", "s0"), Step("conductor", "s1", (0,)), Step("b", "s2", (1,))),
    "does not": (Step("thief", "s0"), Step("conductor", "s1"), Step("b", "s2", (1,))),
}
INNER: Final = Workflow((Step("a", "n0"), Step("b", "n1", (0,))))


@pytest.mark.parametrize("attack", TEXTS.values(), ids=TEXTS.keys())
async def test_a_reply_from_outside_is_one_turn_of_a_nested_run_that_may_read_it(
    attack: str,
) -> None:
    for kind, steps in OUTER.items():
        plan = Workflow(steps)
        innocent, before = await performed(plan, INNOCENT, INNER)
        attacked, after = await performed(plan, attack, INNER)
        assert shape(attacked) == shape(innocent)
        nested = attacked.steps[1].nested[0]
        assert shape(nested) == [(*_planned(step), "done") for step in INNER.steps]
        assert attacked.spent.calls == innocent.spent.calls == 4
        assert after["s2"] == before["s2"]
        for name in ("n0", "n1"):
            if kind == "does not":
                assert after[name] == before[name]
            else:
                assert _with(after[name].messages, attack, INNOCENT) == before[name].messages


def _planned(step: Step) -> tuple[str, str, object]:
    return step.worker, step.subtask, step.access


def _with(messages: Sequence[Message], old: str, new: str) -> tuple[Message, ...]:
    """The messages with one text, which is a turn by itself, exchanged for another."""
    turns = [message.text for message in messages]
    assert turns.count(old) == 1
    assert messages[turns.index(old)].role == "assistant"
    return tuple(assistant(new) if turn.text == old else turn for turn in messages)


@pytest.mark.parametrize("attack", TEXTS.values(), ids=TEXTS.keys())
async def test_a_reply_inside_a_nested_run_stays_inside(attack: str) -> None:
    inner = Workflow((Step("thief", "n0"), Step("a", "n1")))
    plan = Workflow((Step("a", "s0"), Step("conductor", "s1", (0,)), Step("b", "s2", (0, 1))))
    innocent, before = await performed(plan, INNOCENT, inner)
    attacked, after = await performed(plan, attack, inner)
    assert shape(attacked) == shape(innocent)
    assert attacked.spent.calls == innocent.spent.calls
    assert after == before


REVISED: Final = Workflow((Step("a", "better"), Step("b", "last", (0,))))
POOL: Final = Pool(tuple(WorkerProfile(name=name, model=name) for name in ("thief", "a", "b")))


@pytest.mark.parametrize("attack", TEXTS.values(), ids=TEXTS.keys())
async def test_conductor_decides_on_another_round(attack: str) -> None:
    first = write(Workflow((Step("thief", "s0"),)), POOL)
    for second, rounds in ((write(REVISED, POOL), 2), ("model_id=[] subtasks=[] access=[]", 2)):
        prompts = []
        for reply in (INNOCENT, attack):
            planner = ScriptedWorker("planner", [first, second])
            fakes = FakeWorkers(reply)
            conductor = ModelConductor(planner, plan_format="lists")
            run = await fakes.runner(conductor).run(
                QUESTION, options=Options(budget=BUDGET, rounds=2)
            )
            assert len(run.rounds) == rounds
            assert run.rounds[1].accepts_answer == ("[]" in second[:12])
            planned = run.rounds[1].workflow
            assert planned is None or planned.steps == REVISED.steps
            assert run.budget == BUDGET
            prompts.append([message.text for message in planner.requests[1].messages])
        innocent, attacked = prompts
        mark = _mark_in(attacked[1])
        assert [text.replace(mark, "") for text in attacked[:-1]] == innocent[:-1]
        assert frame(attacked[-1])[0] == frame(innocent[-1])[0]
        assert frame(attacked[-1])[1] == [attack]


def _mark_in(prompt: str) -> str:
    found = re.search(r"<question(-[0-9a-f]{12})>", prompt)
    return found[1] if found else "\0"


@pytest.mark.parametrize("style", ["full", "compact", "trained"])
def test_a_conductor_reads_each_turn_of_a_conversation_as_one(style: PromptStyle) -> None:
    prompt = Prompt(style)

    def asked(reply: str) -> list[str]:
        plan = Workflow((Step("thief", "s0"), Step("a", "s1", (0,))))
        history = (user("Before."), assistant(reply))
        context = PlanningContext(
            question=QUESTION,
            pool=POOL,
            max_steps=5,
            rounds=(answered(plan, reply),),
            history=history,
        )
        return [message.text for message in prompt.messages(context)]

    for name, attack in TEXTS.items():
        said = "\n\n".join(asked(attack))
        turns = re.findall(r"<conversation(-[0-9a-f]{12}|)>\n(.*?)\n</conversation\1>", said, re.S)
        assert len(turns) == 1, name
        roles = re.findall(r"^ ?(system|user|assistant|tool) *:", turns[0][1], re.M | re.I)
        assert roles == ["user", "assistant"], name


CLIENTS: Final = Tool("clients", "the client carries it out", {"type": "object"})
OWN: Final = Tool("own", "Podium carries it out", {"type": "object"})


class Box:
    tools = (OWN,)

    def __init__(self) -> None:
        self.called: list[ToolCall] = []

    async def call(self, call: ToolCall) -> ToolResult:
        self.called.append(call)
        return ToolResult(call.id, "RESULT-own")


@pytest.mark.parametrize("attack", CALLS.values(), ids=CALLS.keys())
async def test_a_call_of_a_tool_is_answered_to_the_step_that_made_it(attack: Reply) -> None:
    heard: dict[str, list[str]] = {"thief": [], "reader": [], "last": []}

    def results(request: Request) -> list[str]:
        parts = [part for message in request.messages for part in message.parts]
        return [part.text for part in parts if isinstance(part, ToolResult)]

    def steal(request: Request) -> Reply | str:
        heard["thief"] += results(request)
        return "done" if results(request) else attack

    def read(request: Request) -> Reply | str:
        heard["reader"] += results(request)
        if results(request):
            return "read"
        call = ToolCall("reader-call", "clients", '{"whose": "reader"}')
        return Reply("", Usage(1, 1, 0, 0, 0), "tool", (call,))

    def last(request: Request) -> str:
        heard["last"] += results(request)
        return "the end"

    box = Box()
    runner = Runner(
        FixedConductor(
            Workflow((Step("thief", "s0"), Step("reader", "s1"), Step("last", "s2", (0, 1))))
        ),
        [
            FakeWorker("thief", steal, can=("tools",)),
            FakeWorker("reader", read, can=("tools",)),
            FakeWorker("last", last, can=("tools",)),
        ],
        call_policy=CallPolicy(RetryPolicy(attempts=1)),
        toolbox=box,
    )
    options = Options(budget=BUDGET, response_options=ResponseOptions(tools=(CLIENTS,)))
    run = await runner.run(QUESTION, options=options)
    for _ in range(3):
        if run.status != "waiting":
            break
        assert len({call.id for call in run.waiting_for}) == len(run.waiting_for)
        assert {call.name for call in run.waiting_for} == {"clients"}
        document = tuple(
            ToolResult(call.id, f"RESULT-{json.loads(call.arguments).get('whose', 'thief')}")
            for call in run.waiting_for
        )
        run = await runner.resume(run, results=document)
    assert run.status == "answered"
    assert heard["reader"] == ["RESULT-reader"]
    assert "RESULT-reader" not in heard["thief"]
    assert heard["last"] == []
    assert run.budget == BUDGET
    assert {call.name for call in box.called} <= {"own"}
    assert [step.subtask for step in run.steps] == ["s0", "s1", "s2"]


DIALECTS: Final = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}


async def test_a_reply_that_is_streamed_cannot_end_the_stream_or_speak_as_the_server() -> None:
    replies = list(TEXTS.values())
    worker = ScriptedWorker("solver", replies)
    body = {"model": "solver", "messages": [{"role": "user", "content": "Why?"}], "stream": True}
    async with serving(application([worker], dialects=DIALECTS)) as served:
        for attack in replies:
            response = await served.client.post("/v1/chat/completions", json=body)
            events = response.text.split("\n\n")
            assert all(event.startswith("data: ") for event in events[:-1])
            assert (events[-2:], response.text.count("[DONE]\n\n")) == (["data: [DONE]", ""], 1)
            said = "".join(_content(json.loads(event[6:])) for event in events[:-2])
            assert said == attack


def _content(chunk: Mapping[str, list[Mapping[str, Mapping[str, str]]]]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
