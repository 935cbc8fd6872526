"""What answers are called."""

from __future__ import annotations

from podium.core.request import Message, Text, ToolCall, ToolResult, system, user
from podium.server.dialects.request import ApiRequest, id_stem

RUN = "run_1f"
CALLED = Message("assistant", (ToolCall("call_1", "look", "{}"),))
CALLED_AGAIN = Message("assistant", (ToolCall("call_2", "look", "{}"),))
SEEN = Message("tool", (ToolResult("call_1", "a cat"),))
SEEN_AGAIN = Message("tool", (ToolResult("call_2", "a dog"),))


def stem(*messages: Message) -> str:
    return id_stem(ApiRequest(model="podium", messages=(user("Look"), *messages)), RUN)


def test_an_answer_is_called_as_its_run() -> None:
    assert stem() == "1f"


def test_each_answer_to_results_of_tools_has_a_name_of_its_own() -> None:
    names = {stem(), stem(CALLED, SEEN), stem(CALLED, SEEN, CALLED_AGAIN, SEEN_AGAIN)}
    assert len(names) == 3
    assert all(name.startswith("1f") for name in names)


def test_the_same_request_is_called_the_same() -> None:
    assert stem(CALLED, SEEN) == stem(CALLED, SEEN)


def test_words_after_the_results_leave_the_name_as_it_is() -> None:
    with_words = Message("tool", (*SEEN.parts, Text("Go on.")))
    assert stem(CALLED, with_words) == stem(CALLED, SEEN)
    assert stem(CALLED, SEEN, user("Go on.")) == stem(CALLED, SEEN)
    assert stem(CALLED, SEEN, system("Mind the date.")) == stem(CALLED, SEEN)


def test_results_of_earlier_turns_do_not_count() -> None:
    answered = Message("assistant", (Text("A cat."),))
    assert stem(CALLED, SEEN, answered, user("And now?")) == "1f"
