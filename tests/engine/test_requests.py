from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.core.budget import estimate_input_tokens
from podium.core.pool import Capability, Limits, Pool, WorkerProfile
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
    assistant,
    system,
    user,
)
from podium.core.run import Run
from podium.engine.requests import reply_message, request_for, tools_for

LOOK = Tool("look", "", {"type": "object"})
PICTURE = Image("image/png", "QUJD")
WORDS = "word " * 60  # about a hundred tokens


def profile(*can: Capability, window: int | None = None, model: str = "m") -> WorkerProfile:
    return WorkerProfile(
        name="a",
        model=model,
        capabilities=frozenset(can),
        limits=Limits(context_window=window, max_output_tokens=100),
    )


def asked(
    worker: WorkerProfile,
    *history: Message,
    turns: tuple[Message, ...] = (),
    tools: tuple[Tool, ...] = (),
) -> tuple[Message, ...]:
    run = Run(
        id="run_test",
        question="q",
        status="running",
        pool=Pool((worker,)),
        conductor="fixed",
        created_at="2026-01-02T00:00:00+00:00",
        history=history,
    )
    request = request_for(worker, "prompt", run, turns, tools, is_final=True)
    return request.messages


def shown(call_id: str) -> tuple[Message, Message]:
    """A tool called, and a picture that it showed."""
    result = ToolResult(call_id, "a cat", images=(PICTURE,))
    return used(call_id)[0], Message("tool", (result,))


def used(call_id: str) -> tuple[Message, Message]:
    """A tool called, and what it said."""
    call = ToolCall(call_id, "look", "{}")
    return Message("assistant", (call,)), Message("tool", (ToolResult(call_id, WORDS),))


def test_without_a_window_the_whole_conversation_is_sent() -> None:
    history = (user("hello"), assistant("hi"))
    assert asked(profile(), *history) == (*history, user("prompt"))


def test_the_oldest_turns_are_dropped_first_and_system_messages_stay() -> None:
    rules = system("Be brief.")
    old, new = (user(f"old {WORDS}"), assistant(WORDS)), (user(f"new {WORDS}"), assistant(WORDS))
    assert asked(profile(window=450), *old, rules, *new) == (rules, *new, user("prompt"))
    assert asked(profile(window=200), *old, rules, *new) == (rules, user("prompt"))


def test_a_greeting_after_the_system_message_is_sent() -> None:
    history = (system("Be brief."), assistant("Hello!"), user("hi"), assistant("How can I help?"))
    assert asked(profile(window=2000), *history) == (*history, user("prompt"))


def test_a_tools_result_is_never_without_its_call() -> None:
    turn = (user("look it up"), *used("1"), assistant("found"))
    last = (user("thanks"), assistant("welcome"))
    narrow = profile("tools", window=130)
    assert asked(narrow, *turn, *last, tools=(LOOK,)) == (*last, user("prompt"))
    whole = profile("tools", window=2000)
    assert asked(whole, *turn, *last, tools=(LOOK,)) == (*turn, *last, user("prompt"))


def test_a_step_keeps_its_own_turns_whatever_they_take() -> None:
    turns = used("1")
    messages = asked(profile("tools", window=60), user(WORDS), turns=turns, tools=(LOOK,))
    assert messages == (user("prompt"), *turns)


@given(
    st.lists(st.sampled_from(["user", "assistant", "system", "tool"]), max_size=12),
    st.integers(0, 900),
)
def test_the_sent_conversation_fits_and_is_its_end(roles: list[str], window: int) -> None:
    history: list[Message] = []
    for location, role in enumerate(roles):
        if role == "tool":
            history += used(str(location))
        else:
            history.append(Message(role, (Text(f"{location} {WORDS}"),)))  # type: ignore[arg-type]
    messages = asked(profile("tools", window=window), *history, tools=(LOOK,))[:-1]
    said = [message for message in messages if message.role != "system"]
    before = [message for message in history if message.role != "system"]
    assert said == before[len(before) - len(said) :]
    assert [m for m in messages if m.role == "system"] == [m for m in history if m.role == "system"]
    if said:
        assert said[0].role == "user" or said == before
        assert estimate_input_tokens(Request(messages)) <= window


def test_thinking_goes_only_to_the_model_that_did_it() -> None:
    thought = Message("assistant", (Thinking("hm", "sealed", "m"), Text("yes")))
    alone = Message("assistant", (Thinking("hm", "sealed", "other"),))
    history = (user("is it?"), thought, alone)
    assert asked(profile(), *history) == (user("is it?"), thought, user("prompt"))
    other = asked(profile(model="other"), *history)
    assert other == (user("is it?"), assistant("yes"), alone, user("prompt"))


def test_without_vision_an_image_becomes_a_note() -> None:
    shown = Message("user", (Text("look: "), Image(url="https://x/y")))
    assert asked(profile("vision"), shown)[0] == shown
    assert asked(profile(), shown)[0].text == "look: [an image that you cannot see]"


def test_without_tools_earlier_calls_become_text() -> None:
    call, result = used("1")
    failed = Message("tool", (ToolResult("1", "no such page", is_error=True),))
    messages = asked(profile(), user("look"), call, result, failed)
    assert [message.role for message in messages] == ["user", "assistant", "user", "user", "user"]
    assert messages[1].text == "[called the tool look with {}]"
    assert messages[2].text == f"[the tool look answered: {WORDS}]"
    assert messages[3].text == "[the tool look failed: no such page]"


def test_a_turn_is_handed_back_with_thinking_first_and_calls_last() -> None:
    call, thought = ToolCall("1", "look", "{}"), Thinking("hm", "sealed", "m")
    reply = Reply("Let me see.", tool_calls=(call,), thinking=(thought,))
    assert reply_message(reply, (call,)).parts == (thought, Text("Let me see."), call)
    assert reply_message(Reply("", tool_calls=(call,)), (call,)).parts == (call,)


def test_tools_not_to_be_called_are_offered_to_the_final_step_only() -> None:
    response_options = ResponseOptions(tools=(LOOK,), tool_choice="none")
    assert tools_for(profile("tools"), response_options, None, with_client_tools=True) == (LOOK,)
    assert tools_for(profile("tools"), response_options, None, with_client_tools=False) == ()
    assert tools_for(profile(), ResponseOptions(tools=(LOOK,)), None, with_client_tools=True) == ()


def test_images_of_tools_go_to_workers_with_vision() -> None:
    for where in ({"turns": shown("1")}, {}):
        history = () if where else shown("1")
        messages = asked(profile("vision", "tools"), *history, tools=(LOOK,), **where)
        assert shown("1")[1] in messages


def test_without_vision_a_tools_image_becomes_a_note() -> None:
    result = asked(profile("tools"), turns=shown("1"), tools=(LOOK,))[-1].parts[0]
    assert result == ToolResult("1", "a cat\n[an image that you cannot see]")


def test_without_tools_a_tools_image_stays_beside_its_text() -> None:
    words = Text("[the tool look answered: a cat]")
    assert asked(profile("vision"), turns=shown("1"))[-1] == Message("user", (words, PICTURE))
    (result,) = asked(profile(), turns=shown("1"))[-1].parts
    assert result == Text("[the tool look answered: a cat\n[an image that you cannot see]]")
