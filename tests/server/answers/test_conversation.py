from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import (
    Image,
    Message,
    ResponseOptions,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    assistant,
    system,
    user,
)
from podium.core.run import Round, Run, RunResponse, StepRecord
from podium.core.workflow import Step, Workflow
from podium.server.answers.conversation import (
    IMAGE_QUESTION,
    Fingerprint,
    continues,
    find_continuation,
    parse_response_id,
    response_id,
    split_conversation,
    strip_call_ids,
)
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest, PodiumParams

RUN = "run_0123456789abcdef"
CALL = ToolCall("toolu_1", "look", '{"at": "it", "how": 1}')
SEEN = replace(CALL, id="call_0123456789abcdef_toolu_1")
CALLED = Message("assistant", (SEEN,))
PICTURE = Image(media_type="image/png", data="aaaa")
RESULT = ToolResult(SEEN.id, "red")


def results(*parts: ToolResult | Text | Image) -> Message:
    return Message("tool", parts)


def waiting(text: str = "", call: ToolCall = CALL) -> Run:
    """A run that waits for the result of one call."""
    step = StepRecord(
        0,
        0,
        "solo",
        "Look!",
        (),
        "waiting",
        text,
        None,
        0.0,
        0.0,
        turns=(Message("assistant", (Thinking("hm", "sealed", "m"), call)),),
    )
    return Run(
        id=RUN,
        question="Look!",
        status="waiting",
        answer=text or None,
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
        rounds=(Round(0, Workflow((Step("solo", "Look!"),)), (step,)),),
    )


def test_the_last_message_of_the_user_is_the_question() -> None:
    before = (system("Be brief."), user("Hello"), assistant("Hi"))
    found = split_conversation((*before, Message("user", (PICTURE, Text("What is this?")))))
    assert (found.history, found.trailing_messages) == (before, ())
    assert (found.question, found.images) == ("What is this?", (PICTURE,))


def test_instructions_after_the_question_belong_to_the_history() -> None:
    found = split_conversation((user("Context."), user("Question?"), system("Be brief.")))
    assert found.question == "Question?"
    assert found.history == (user("Context."), system("Be brief."))


def test_an_image_without_text_gets_a_question() -> None:
    assert split_conversation((Message("user", (PICTURE,)),)).question == IMAGE_QUESTION


@pytest.mark.parametrize("messages", [(system("Hi"), assistant("Hello")), (user("  "),)])
def test_a_conversation_without_a_question_is_refused(messages: tuple[Message, ...]) -> None:
    with pytest.raises(ApiError) as refused:
        split_conversation(messages)
    assert refused.value.field == "messages"


def test_tool_results_and_the_start_of_an_answer_follow_the_question() -> None:
    found = split_conversation((user("Look!"), CALLED, results(RESULT)))
    assert (found.question, found.history) == ("Look!", ())
    assert found.trailing_messages == (
        Message("assistant", (CALL,)),
        results(ToolResult("toolu_1", "red")),
    )
    started = split_conversation((user("Look!"), assistant("It is")))
    assert started.trailing_messages == (assistant("It is"),)


def test_text_beside_tool_results_is_the_question_where_there_is_no_other() -> None:
    found = split_conversation((CALLED, results(RESULT, Text("And now?"))))
    assert (found.question, found.trailing_messages) == ("And now?", ())
    assert found.history[-1] == results(ToolResult("toolu_1", "red"))


def test_call_ids_name_the_run_for_clients_only() -> None:
    assert SEEN.id == "call_0123456789abcdef_toolu_1"
    assert strip_call_ids((CALLED, results(RESULT))) == (
        Message("assistant", (CALL,)),
        results(ToolResult("toolu_1", "red")),
    )


def test_tool_results_at_the_end_name_the_run_they_continue() -> None:
    found = find_continuation((user("Look!"), CALLED, results(RESULT)))
    assert found is not None
    assert (found.run_id, found.before, found.output) == (RUN, (user("Look!"),), CALLED)
    assert found.results == (ToolResult("toolu_1", "red"),)


@pytest.mark.parametrize(
    "after", [(), (results(RESULT), user("And?")), (results(RESULT), system("Be brief."))]
)
def test_anything_else_at_the_end_continues_no_run(after: tuple[Message, ...]) -> None:
    assert find_continuation((user("Look!"), CALLED, *after)) is None


def test_text_and_images_beside_results_reach_the_worker_with_the_last_result() -> None:
    beside = Image(url="https://example.org/b.png")
    shown = replace(RESULT, images=(PICTURE,))
    found = find_continuation((CALLED, results(shown, Text("Hurry."), beside)))
    assert found is not None
    assert found.results == (ToolResult("toolu_1", "red\n\nHurry.", images=(PICTURE, beside)),)


@pytest.mark.parametrize("ids", [["call_other"], [SEEN.id, "call_ffffffffffffffff_x"]])
def test_results_of_several_runs_name_no_run(ids: list[str]) -> None:
    found = find_continuation((CALLED, results(*(ToolResult(id_, "red") for id_ in ids))))
    assert found is not None
    assert found.run_id == ""


def continued(run: Run, output: Message, *given: ToolResult) -> bool:
    found = find_continuation((user("Look!"), output, results(*given)))
    assert found is not None
    return continues(run, found)


def test_a_client_that_repeats_the_calls_and_brings_their_results_continues_the_run() -> None:
    respelled = replace(SEEN, arguments='{"how":1,"at":"it"}')
    assert continued(waiting(), Message("assistant", (respelled,)), RESULT)
    said = Message("assistant", (Text("Let me see. "), SEEN))
    assert continued(waiting("Let me see."), said, RESULT)


@pytest.mark.parametrize(
    ("output", "given"),
    [
        (Message("assistant", (Text("I look."), SEEN)), (RESULT,)),
        (Message("assistant", (replace(SEEN, arguments="{}"),)), (RESULT,)),
        (Message("assistant", (replace(SEEN, name="see"),)), (RESULT,)),
        (Message("assistant", (SEEN, replace(SEEN, id=f"{SEEN.id}2"))), (RESULT,)),
        (CALLED, (RESULT, RESULT)),
        (CALLED, (replace(RESULT, call_id=f"{SEEN.id}2"),)),
    ],
)
def test_a_changed_output_or_other_results_continue_nothing(
    output: Message, given: tuple[ToolResult, ...]
) -> None:
    assert not continued(waiting(), output, *given)


@pytest.mark.parametrize(
    ("known", "sent", "same"),
    [
        ('{"to": "[e-mail 1]"}', '{"to": "ada@example.org"}', True),
        ('{"to": "[e-mail 1]", "cc": "[e-mail 2]"}', '{"to": "a@b.c", "cc": "d@e.f"}', True),
        ('{"to": "[e-mail 1]"}', '{"cc": "ada@example.org"}', False),
        ('{"to": "[e-mail 1]", "n": 1}', '{"to": "ada@example.org", "n": 2}', False),
    ],
)
def test_values_that_a_guardrail_redacted_may_be_any(known: str, sent: str, same: bool) -> None:
    run = waiting(call=replace(CALL, arguments=known))
    output = Message("assistant", (replace(SEEN, arguments=sent),))
    assert continued(run, output, RESULT) is same


REQUEST = ApiRequest(
    model="podium",
    messages=(system("Be brief."), user("Look!"), CALLED, results(RESULT)),
    response_options=ResponseOptions(tools=(Tool("look", "", {}),)),
)


def fingerprint(request: ApiRequest = REQUEST, key: str = "k") -> Fingerprint:
    return Fingerprint.of(request, request.messages, key)


def with_message(index: int, message: Message) -> ApiRequest:
    messages = list(REQUEST.messages)
    messages[index] = message
    return replace(REQUEST, messages=tuple(messages))


CHANGES: list[Callable[[], Fingerprint]] = [
    lambda: fingerprint(key="other"),
    lambda: fingerprint(replace(REQUEST, model="podium-ultra")),
    lambda: fingerprint(replace(REQUEST, params=PodiumParams(exclude=frozenset({"a"})))),
    lambda: fingerprint(replace(REQUEST, params=PodiumParams(rounds=2))),
    lambda: fingerprint(replace(REQUEST, response_options=ResponseOptions())),
    lambda: fingerprint(
        replace(REQUEST, response_options=replace(REQUEST.response_options, tool_choice="look"))
    ),
    lambda: fingerprint(with_message(0, system("Be wordy."))),
    lambda: fingerprint(with_message(1, user("Listen!"))),
    lambda: fingerprint(with_message(3, results(replace(RESULT, text="blue")))),
    lambda: fingerprint(replace(REQUEST, messages=REQUEST.messages[:-1])),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_request_changes_its_fingerprint(
    change: Callable[[], Fingerprint],
) -> None:
    assert str(change()) != str(fingerprint())


def test_thinking_and_spelling_do_not_change_a_fingerprint() -> None:
    respelled = replace(SEEN, arguments='{"how":1,"at":"it"}')
    thought = Message("assistant", (Thinking("hm"), respelled))
    assert fingerprint(with_message(2, thought)) == fingerprint()
    assert fingerprint(replace(REQUEST, stream=True, store=False)) == fingerprint()


def test_only_instructions_and_options_are_settings() -> None:
    assert fingerprint(with_message(1, user("Listen!"))).settings == fingerprint().settings
    assert fingerprint(with_message(0, system("No."))).messages == fingerprint().messages


def test_every_response_of_a_run_has_its_own_id() -> None:
    run = waiting()
    exchange = RunResponse(text="", tool_calls=(CALL,), results=())
    ids = [response_id(replace(run, earlier_responses=(exchange,) * count)) for count in range(3)]
    assert ids == [RUN, f"{RUN}_1", f"{RUN}_2"]
    assert [parse_response_id(id_) for id_ in ids] == [(RUN, 0), (RUN, 1), (RUN, 2)]


@pytest.mark.parametrize("id_", ["run_1", f"{RUN}_0", f"{RUN}_01", f"{RUN}_x", "last"])
def test_an_id_of_no_response_names_no_run(id_: str) -> None:
    assert parse_response_id(id_) == ("", 0)
