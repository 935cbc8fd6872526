"""What a row of a benchmark means where the answer is a text: as a record of a task.

A reader gets a row and the split, and returns None for a row that is not of it: it is another
split's, or left out by the benchmark's own rule. Two problems that MATH trains on are known to
have no answer. What is wrong with a row is an error without the place, which the caller knows.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from podium.errors import ConfigError
from podium.tasks.record import TaskRecord
from podium.tasks.sources import Row
from podium.tasks.wording import prompt

LONGEST_RLPR_ANSWER: Final = 30
"""Characters; longer ones cannot be graded by comparing them."""

MATH_TRAINING: Final = ("train", "prm800k")
LETTERS: Final = "ABCDEFGHIJ"
WRONG_CHOICES: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def math(row: Row, split: str) -> TaskRecord | None:
    """MATH and MATH-500."""
    if split == "train" and row.data.get("original_split", "train") != "train":
        return None
    answer = row.data["answer"] if "answer" in row.data else boxed(row.text("solution"))
    if not answer and split in MATH_TRAINING:
        return None
    number = row.data.get("idx", row.number)
    return TaskRecord(
        id=str(row.data.get("unique_id") or f"math/{split}/{number}"),
        question=prompt("math", question=row.text("problem")),
        answer=str(answer or ""),
        grader="math",
        parameters={"tagged": True},
        kind=str(row.data.get("subject") or row.data.get("type") or ""),
        difficulty=_level(row.data.get("level")),
    )


def _level(written: Any) -> str | None:
    """The level as one of 1 to 5, however a file writes it; some have a question mark."""
    level = str(written).lower().removeprefix("level").strip()
    return f"level {level}" if level in {"1", "2", "3", "4", "5"} else None


def boxed(solution: str) -> str:
    """What stands in the last box of a solution, empty where there is none."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return ""
    rest = solution[start:].partition("box")[2].removeprefix("ed").lstrip()
    if not rest.startswith("{"):
        first, *_ = [*rest.partition("$")[0].split(), ""]
        return first
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:place].strip()
    return ""


def gsm8k(row: Row, split: str) -> TaskRecord:
    """GSM8K: the result stands in the last line of the answer."""
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark:
        raise ConfigError("expected a last line `#### result` in the answer")
    return TaskRecord(
        id=f"gsm8k/{split}/{row.number}",
        question=prompt("number", question=row.text("question")),
        answer=answer.strip().replace(",", ""),
        grader="number",
        parameters={"tagged": True},
        kind="gsm8k",
    )


def mmlu(row: Row, split: str) -> TaskRecord | None:
    """MMLU."""
    if row.data.get("split", split) != split:
        return None
    choices = row.data.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise ConfigError("expected a list of choices in 'choices'")
    letters = LETTERS[: len(choices)]
    answer = row.data.get("answer")
    letter = letters[answer] if isinstance(answer, int) and answer < len(letters) else answer
    if not isinstance(letter, str) or letter not in letters:
        raise ConfigError(f"expected one of {letters} in 'answer', not {answer!r}")
    subject = str(row.data.get("subject") or split)
    return TaskRecord(
        id=f"mmlu/{split}/{subject}/{row.number}",
        question=prompt("letter", question=row.text("question"), choices=_listed(choices)),
        answer=letter,
        grader="letter",
        parameters={"tagged": True},
        kind=subject,
    )


def rlpr(row: Row, split: str) -> TaskRecord | None:
    """RLPR, where the answer is short."""
    try:
        asked = [message["content"] for message in row.data["prompt"] if message["role"] == "user"]
        answer = str(row.data["reward_model"]["ground_truth"]).strip()
        question = str(asked[-1]).strip()
    except (KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            "expected a user's message in 'prompt' and reward_model.ground_truth"
        ) from error
    if not 0 < len(answer) <= LONGEST_RLPR_ANSWER:
        return None
    return TaskRecord(
        id=f"rlpr/{split}/{row.number}",
        question=prompt("short", question=question),
        answer=answer,
        grader="short",
        parameters={"tagged": True},
        kind=str(row.data.get("ability") or "rlpr"),
    )


def aime24(row: Row, split: str) -> TaskRecord:
    """AIME of 2024."""
    return _aime(row, "aime24")


def aime25(row: Row, split: str) -> TaskRecord:
    """AIME of 2025."""
    return _aime(row, "aime25")


def _aime(row: Row, year: str) -> TaskRecord:
    """Every answer is an integer from 0 to 999."""
    question = row.text("problem" if "problem" in row.data else "question")
    written = str(row.data.get("answer", "")).strip()
    if not written.isdecimal() or int(written) > 999:
        raise ConfigError(f"expected an integer from 0 to 999 in 'answer', not {written!r}")
    number = row.data.get("id", row.data.get("question_id", row.number))
    return TaskRecord(
        id=f"{year}/{number}",
        question=prompt("number", question=question),
        answer=str(int(written)),
        grader="number",
        parameters={"tolerance": 0, "tagged": True},
        kind=year,
    )


def gpqa(row: Row, split: str) -> TaskRecord:
    """GPQA-Diamond. The file has the right answer first; here a hash orders the choices, the
    same on every machine."""
    question, right = row.text("Question").strip(), row.text("Correct Answer").strip()
    name = str(row.data.get("Record ID") or row.number)
    choices = sorted(
        [right, *(row.text(column).strip() for column in WRONG_CHOICES)],
        key=lambda choice: blake2b(f"{name}\0{choice}".encode()).digest(),
    )
    difficulty = str(row.data.get("Writer's Difficulty Estimate") or "").strip()
    return TaskRecord(
        id=f"gpqa-diamond/{name}",
        question=prompt("letter", question=question, choices=_listed(choices)),
        answer=LETTERS[choices.index(right)],
        grader="letter",
        parameters={"tagged": True},
        kind=str(row.data.get("High-level domain") or split),
        difficulty=difficulty or None,
    )


def _listed(choices: list[str]) -> str:
    return "\n".join(
        f"{letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False)
    )
