from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Image, Message, Text, ToolCall, ToolResult, assistant, system, user
from podium.core.run import Run
from podium.server.answers.conversation import (
    IMAGE_QUESTION,
    continue_run,
    expose_call_ids,
    parse_turn,
    strip_call_ids,
)
from podium.server.api_error import ApiError

RUN = "run_0123456789abcdef"
CALL = ToolCall("toolu_1", "look", "{}")
SEEN = expose_call_ids(RUN, (CALL,))[0]
PICTURE = Image(media_type="image/png", data="aaaa")


def results(*parts: ToolResult | Text | Image) -> Message:
    return Message("user", parts)


def test_the_last_turn_is_the_question_and_all_before_is_history() -> None:
    before = (system("Be brief."), user("Hello"), assistant("Hi"))
    turn = parse_turn((*before, Message("user", (PICTURE, Text("What is this?")))))
    assert turn.history == before
    assert (turn.question, turn.images) == ("What is this?", (PICTURE,))


def test_of_several_last_messages_the_last_of_the_user_is_the_question() -> None:
    turn = parse_turn((user("Context."), user("Question?"), system("Be brief.")))
    assert turn.question == "Question?"
    assert turn.history == (user("Context."), system("Be brief."))


def test_a_picture_without_a_word_is_to_be_looked_at() -> None:
    assert parse_turn((Message("user", (PICTURE,)),)).question == IMAGE_QUESTION


@pytest.mark.parametrize("messages", [(user("Hi"), assistant("Hello")), (user("  "),)])
def test_a_conversation_that_asks_nothing_is_refused(messages: tuple[Message, ...]) -> None:
    with pytest.raises(ApiError) as refused:
        parse_turn(messages)
    assert refused.value.field == "messages"


def test_the_ids_of_calls_name_the_run_outside_and_not_inside() -> None:
    assert SEEN.id == "call_0123456789abcdef_toolu_1"
    spoken = Message("assistant", (SEEN,))
    answered = results(ToolResult(SEEN.id, "red"))
    assert strip_call_ids((spoken, answered)) == (
        Message("assistant", (CALL,)),
        results(ToolResult("toolu_1", "red")),
    )


def test_results_of_tools_go_on_with_the_run_that_waits_for_them() -> None:
    turn = parse_turn(
        (user("Look!"), Message("assistant", (SEEN,)), results(ToolResult(SEEN.id, "red")))
    )
    assert turn.waiting == RUN
    assert turn.results == (ToolResult("toolu_1", "red"),)


def test_words_beside_results_reach_the_worker_with_the_last_of_them() -> None:
    turn = parse_turn((results(ToolResult(SEEN.id, "red"), Text("Hurry.")),))
    assert turn.results == (ToolResult("toolu_1", "red\n\nHurry."),)


def test_instructions_beside_results_are_no_part_of_them() -> None:
    turn = parse_turn((system("You are a pirate."), results(ToolResult(SEEN.id, "red"))))
    assert turn.results == (ToolResult("toolu_1", "red"),)
    assert turn.history == (system("You are a pirate."),)
    assert turn.fallback is None


def test_pictures_of_and_beside_results_reach_the_worker() -> None:
    beside = Image(url="https://example.org/b.png")
    shown = ToolResult(SEEN.id, "red", images=(PICTURE,))
    assert parse_turn((results(shown),)).results == (replace(shown, call_id="toolu_1"),)
    turn = parse_turn((results(shown, beside),))
    assert turn.results == (ToolResult("toolu_1", "red", images=(PICTURE, beside)),)
    assert turn.fallback is not None
    assert (turn.fallback.question, turn.fallback.images) == (IMAGE_QUESTION, (beside,))


def test_words_beside_results_can_be_asked_afresh() -> None:
    spoken = Message("assistant", (SEEN,))
    turn = parse_turn(
        (user("Look!"), spoken, results(ToolResult(SEEN.id, "red"), Text("And now?")))
    )
    assert turn.fallback is not None
    assert turn.fallback.question == "And now?"
    assert turn.fallback.history == (
        user("Look!"),
        Message("assistant", (CALL,)),
        results(ToolResult("toolu_1", "red")),
    )
    assert parse_turn((user("Look!"), spoken, results(ToolResult(SEEN.id, "red")))).fallback is None


def test_words_beside_results_of_another_servers_calls_are_asked() -> None:
    called = Message("assistant", (ToolCall("call_1", "look", "{}"),))
    turn = parse_turn(
        (user("Look!"), called, results(ToolResult("call_1", "red")), user("And now?"))
    )
    assert (turn.question, turn.results, turn.waiting) == ("And now?", (), "")
    assert turn.history == (user("Look!"), called, results(ToolResult("call_1", "red")))
    with pytest.raises(
        ApiError, match="no run waits for the tool results"
    ):  # nobody told of the call
        parse_turn((user("Look!"), results(ToolResult("call_1", "red"), Text("And now?"))))


@pytest.mark.parametrize("ids", [["call_of_somebody"], [SEEN.id, "call_ffffffffffffffff_x"]])
def test_results_that_no_one_run_waits_for_are_refused(ids: list[str]) -> None:
    with pytest.raises(ApiError, match="no run waits for the tool results") as refused:
        parse_turn((results(*(ToolResult(id_, "red") for id_ in ids)),))
    assert refused.value.field == "messages"


def test_a_turn_goes_on_from_a_run_and_its_instructions_replace_the_earlier() -> None:
    run = Run(
        id=RUN,
        question="Hello",
        status="answered",
        pool=Pool((WorkerProfile(name="solo"),)),
        conductor="rules",
        created_at="2026-01-01T00:00:00.000+00:00",
        history=(system("Be brief."), user("Before")),
        images=(PICTURE,),
    )
    asked = Message("user", (Text("Hello"), PICTURE))
    assert continue_run(run, parse_turn((user("And?"),))).history == (*run.history, asked)
    instructed = continue_run(run, parse_turn((system("Be wordy."), user("Also"), user("And?"))))
    assert instructed.history == (system("Be wordy."), user("Before"), asked, user("Also"))
    assert instructed.question == "And?"
