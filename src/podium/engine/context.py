"""What a worker sees, and nothing else.

A worker receives the conversation before the question, the question (unless the pool keeps it
back), the (subtask, reply) pairs that its access names, and its own subtask. Everything between
tags is data: tags are chosen so that no text inside can close them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from podium.core.tags import unused_mark

TAGS: Final = ("question", "subtask", "reply")

TEXTS: Final = ("step.txt", "final.txt", "go_on.txt", "repair.txt")
"""What workers are told in Podium's own words, by the names of the files."""


class Pair(NamedTuple):
    """An earlier step as later workers see it; `step` says which one it was."""

    step: str
    subtask: str
    reply: str


def compose(
    subtask: str, *, question: str | None, pairs: Sequence[Pair] = (), is_final: bool
) -> str:
    """The message for one step. `question` is None where the pool keeps it back.

    There is no ceremony where it would only cost: a worker that is handed the whole question is
    asked just that, and workers that may not know the question are not told about it.
    """
    if question is None and not pairs:
        return subtask
    if is_final and not pairs and subtask == question:
        return question
    texts = [question or ""]
    for pair in pairs:
        texts += (pair.subtask, pair.reply)
    mark = unused_mark(TAGS, texts)
    if question is None:
        return "\n\n".join([*_sections(pairs, mark), subtask])
    parts = [
        prompt_text("step.txt"),
        f"<question{mark}>\n{question}\n</question{mark}>",
        *_sections(pairs, mark),
        f"Your subtask: {subtask}",
    ]
    if is_final:
        parts.append(prompt_text("final.txt"))
    return "\n\n".join(parts)


def _sections(pairs: Sequence[Pair], mark: str) -> list[str]:
    return [
        f'<subtask{mark} step="{step}">\n{subtask}\n</subtask{mark}>\n'
        f'<reply{mark} step="{step}">\n{reply}\n</reply{mark}>'
        for step, subtask, reply in pairs
    ]


@cache
def prompt_hash() -> str:
    """A fingerprint of the texts that workers' messages are built from."""
    texts = "\0".join(prompt_text(name) for name in TEXTS)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


@cache
def prompt_text(name: str) -> str:
    """One of the engine's own texts to workers, by the name of its file."""
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
