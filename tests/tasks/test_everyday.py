"""The hundred everyday questions: they are whole, balanced, and their graders can tell."""

from collections import Counter

import pytest

from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.tasks import load_suite
from podium.tasks.graders import make_grader
from podium.tasks.records import TaskRecord

TASKS = load_suite("everyday-100")

OF_USERS = {
    "pride-and-prejudice",
    "product",
    "duration",
    "summary",
    "polite",
    "palindrome",
    "french",
    "tea-and-coffee",
    "second-nobel-prize",
    "strawberry",
    "weather",
    "roman-backwards",
    "name",
}


def test_there_are_a_hundred_questions_in_eight_kinds_of_equal_size() -> None:
    assert len({task.question for task in TASKS}) == 100
    kinds = Counter(task.kind for task in TASKS)
    assert len(kinds) == 8
    assert set(kinds.values()) == {12, 13}
    assert {f"everyday-100/{name}" for name in OF_USERS} <= {task.id for task in TASKS}


def test_only_follow_ups_have_a_conversation_before_them() -> None:
    assert all(bool(task.history) == (task.kind == "follow-ups") for task in TASKS)
    name = next(task for task in TASKS if task.id == "everyday-100/name")
    assert [message.role for message in name.messages] == ["user", "assistant", "user"]
    assert name.messages[-1].text == "What is my name?"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id.partition("/")[2])
async def test_the_reference_is_right_and_neither_silence_nor_an_echo_is(task: Task) -> None:
    assert await task.grader(task.answer)
    assert not await task.grader("")
    assert not await task.grader("I do not understand.")
    assert not await task.grader(task.question)


async def test_answers_of_other_questions_are_wrong() -> None:
    for kind in ("facts", "times", "translation", "multi-step"):
        tasks = [task for task in TASKS if task.kind == kind]
        for task, other in zip(tasks, tasks[1:] + tasks[:1], strict=True):
            assert not await task.grader(other.answer), (task.id, other.answer)


async def test_patterns_are_all_found_none_forbidden_within_the_words() -> None:
    grader = make_grader(
        "patterns", "", {"patterns": ["rain", "cancel"], "forbidden": ["snow"], "max_words": 4}
    )
    assert await grader("Rain: match cancelled.")
    assert not await grader("Rain.")
    assert not await grader("Cancelled by rain and snow")
    assert not await grader("Cancelled by rain this time")
    with pytest.raises(ConfigError, match="not valid"):
        make_grader("patterns", "", {"patterns": ["("]})


def test_a_history_without_the_assistants_turn_is_refused() -> None:
    row = {"question": "?", "answer": "1", "grader": "number", "history": ["Hello."]}
    with pytest.raises(ConfigError, match="assistant's turn"):
        TaskRecord.from_json(row, "1")
    whole = TaskRecord.from_json(row | {"history": ["Hello.", "Hi."]}, "1")
    assert TaskRecord.from_json(whole.to_json(), "1") == whole
