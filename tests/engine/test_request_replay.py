from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from podium.core.errors import RequestRefused
from podium.core.pool import CONDUCTOR_PROVIDER, Capability, Limits, Pool, WorkerProfile
from podium.core.request import (
    Image,
    Message,
    Reply,
    Request,
    ResponseOptions,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    user,
)
from podium.core.run import Round, Run
from podium.core.workflow import Step, Workflow
from podium.engine import Execution
from podium.engine.requests import replay_request
from support.harness import EngineHarness, FakeWorker

EVERY: tuple[Capability, ...] = ("tools", "json", "sampling", "reasoning", "vision")
PICTURE = Image("image/png", "QUJD")
LOOK = Tool("look", "Looks it up", {"type": "object"})
TWO = Workflow((Step("a", "Draft it"), Step("b", "Finish it", (0,))))
HISTORY = (
    system("Be brief."),
    user("old words " * 200),
    assistant("old reply " * 200),
    Message("user", (Text("what is this?"), PICTURE)),
    Message("assistant", (Thinking("hm", "sealed", "b"), Text("a cat"))),
)


@dataclass
class Drawer:
    """One tool of Podium's own."""

    tools: tuple[Tool, ...] = (LOOK,)

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(call.id, "found it")


def run_of(execution: Execution) -> Run:
    rounds = (Round(0, Workflow(tuple(execution.steps)), execution.steps_so_far()),)
    return replace(execution.run, status="answered", rounds=rounds)


async def carried_out(
    *fakes: FakeWorker,
    workflow: Workflow = TWO,
    history: tuple[Message, ...] = (),
    response_options: ResponseOptions = ResponseOptions(),  # noqa: B008
    images: tuple[Image, ...] = (),
    toolbox: Drawer | None = None,
) -> Run:
    engine = EngineHarness(toolbox=toolbox)
    execution = await engine.execute(
        workflow, *fakes, history=history, response_options=response_options, images=images
    )
    return run_of(execution)


def retold(run: Run, index: int, toolbox: Drawer | None = None) -> Request:
    round_ = run.rounds[0]
    request = replay_request(run, round_, round_.steps[index], toolbox)
    assert request is not None
    return request


@pytest.mark.parametrize("can", [(), ("vision",), EVERY], ids=["plain", "sees", "all"])
@pytest.mark.parametrize("window", [None, 900])
async def test_a_replayed_request_is_what_the_worker_received(
    can: tuple[Capability, ...], window: int | None
) -> None:
    fakes = [FakeWorker(name, can=can, limits=Limits(context_window=window)) for name in "ab"]
    run = await carried_out(*fakes, history=HISTORY, images=(PICTURE,))
    for index, fake in enumerate(fakes):
        assert retold(run, index) == fake.requests[-1]
    messages = fakes[1].requests[-1].messages
    assert ("old words" in messages[1].text) == (window is None)


async def test_tool_turns_are_replayed() -> None:
    said = iter([Reply("one moment", Usage(1, 1, 0, 0, 0), "tool", (ToolCall("1", "look", "{}"),))])
    finisher = FakeWorker("b", lambda request: next(said, "done"), can=EVERY)
    run = await carried_out(FakeWorker("a"), finisher, toolbox=Drawer())
    request = retold(run, 1, Drawer())
    assert request == finisher.requests[-1]
    assert "found it" in repr(request.messages)
    assert request.tools == (LOOK,)


async def test_a_repair_request_is_replayed() -> None:
    said = iter(["no JSON", '{"n": 1}'])
    response_options = ResponseOptions(schema={"type": "object", "required": ["n"]})
    finisher = FakeWorker("b", lambda request: next(said), can=EVERY)
    run = await carried_out(FakeWorker("a"), finisher, response_options=response_options)
    assert retold(run, 1) == finisher.requests[-1]
    assert len(retold(run, 1).messages) == 3


async def test_a_fallbacks_request_is_replayed() -> None:
    def refuses(request: Request) -> Exception:
        return RequestRefused("not me")

    seer = FakeWorker("seer", can=("vision",))
    run = await carried_out(
        FakeWorker("a", refuses, fallback="seer"),
        seer,
        workflow=Workflow((Step("a", "Look at it"),)),
        images=(PICTURE,),
    )
    assert run.steps[0].answered_by == "seer"
    assert retold(run, 0) == seer.requests[-1]
    assert PICTURE in seer.requests[-1].messages[-1].parts


async def test_a_skipped_step_has_no_request() -> None:
    def refuses(request: Request) -> Exception:
        return RequestRefused("not me")

    run = await carried_out(FakeWorker("a", refuses), FakeWorker("b"))
    failed, skipped = run.steps
    assert replay_request(run, run.rounds[0], failed) is not None
    assert skipped.status == "skipped"
    assert replay_request(run, run.rounds[0], skipped) is None


async def test_a_step_that_was_a_run_of_its_own_has_no_request() -> None:
    run = await carried_out(FakeWorker("a"), FakeWorker("b"))
    leader = WorkerProfile(name="a", provider=CONDUCTOR_PROVIDER)
    changed = replace(run, pool=Pool((leader, run.pool["b"])))
    assert replay_request(changed, changed.rounds[0], changed.steps[0]) is None
