from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Image, Message, Text, ToolCall, ToolResult, Usage, assistant, system
from podium.core.run import Attempt, ClientRequest, Round, Run, RunResponse, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.answers.result import StoredResponse

CALL = ToolCall("c1", "look", "{}")
PICTURE = Image(media_type="image/png", data="aaaa")
ATTEMPT = Attempt("solo", Usage(7, 8, 0, 0, 0), 0.0, 0.0, 0.0)
STEP = StepRecord(0, 0, "solo", "Look", (), "done", "so", None, 0.0, 1.0, attempts=(ATTEMPT,))
CALLED = RunResponse(
    text="So.",
    tool_calls=(CALL,),
    results=(ToolResult("c1", "red"),),
    usage=Usage(5, 5, 0, 0, 0),
    request=ClientRequest(stored_fields={"model": "podium", "metadata": {"turn": "first"}}),
)
RUN = Run(
    id="run_0123456789abcdef",
    question="Why?",
    status="answered",
    pool=Pool((WorkerProfile(name="solo"),)),
    conductor="rules",
    created_at="2026-01-01T00:00:00.000+00:00",
    rounds=(Round(0, Workflow((Step("solo", "Look"),)), (STEP,)),),
    answer="so",
    tier="ultra",
    history=(system("Be brief."),),
    images=(PICTURE,),
    earlier_responses=(CALLED,),
)


def test_each_response_of_a_run_is_rebuilt_as_it_was() -> None:
    first, second = (StoredResponse(RUN, number).reconstruct()[1] for number in (0, 1))
    assert (first.id, first.text, first.finish) == (RUN.id, "So.", "tool")
    assert [call.id for call in first.tool_calls] == ["call_0123456789abcdef_c1"]
    assert first.usage.output_tokens == 5
    assert (second.id, second.text, second.finish) == (f"{RUN.id}_1", "so", "stop")
    assert (second.usage.input_tokens, second.usage.output_tokens) == (2, 3)
    assert (first.created, second.tool_calls) == (1767225600, ())


def test_each_response_has_the_fields_of_its_own_request() -> None:
    first, second = (StoredResponse(RUN, number).reconstruct()[0] for number in (0, 1))
    assert (first.model, first.raw_body["metadata"]) == ("podium", {"turn": "first"})
    assert (second.model, second.raw_body) == ("podium-ultra", {})


def test_the_conversation_before_each_response_is_rebuilt_from_the_run() -> None:
    asked = (system("Be brief."), Message("user", (PICTURE, Text("Why?"))))
    called = Message("assistant", (Text("So."), CALL))
    first, second = (StoredResponse(RUN, number) for number in (0, 1))
    assert (first.input, first.output) == (asked, called)
    assert second.input == (*asked, called, Message("tool", CALLED.results))
    assert second.output == assistant("so")


@pytest.mark.parametrize("conductor", ["rules", "direct"])
def test_calls_of_a_worker_asked_by_its_own_name_keep_their_ids(conductor: str) -> None:
    _, answer = StoredResponse(replace(RUN, conductor=conductor), 0).reconstruct()
    own = conductor == "direct"
    assert answer.tool_calls[0].id == ("c1" if own else "call_0123456789abcdef_c1")
