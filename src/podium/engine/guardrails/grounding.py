"""The grounding check: another worker compares the answer with the replies it was made from.

Where no other step replied there is nothing to compare with, and nobody is asked.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from string import Template
from typing import Final, Literal

from podium.core.errors import BadReply
from podium.core.tags import unused_mark
from podium.engine.guardrails.base import Block, GuardrailInput, Note, Pass, Replan, Verdict, Verify

Ungrounded = Literal["block", "replan", "note"]
"""What is done about an answer that is not grounded."""

TAGS: Final = ("question", "reply", "answer")

LONGEST_REASON: Final = 400
"""Characters of a verifier's reason that are kept and told."""

_GROUNDED: Final = re.compile(r"\W{0,20}(not\s{1,4})?grounded\b\W{0,20}(.{0,2000})", re.I | re.S)


class Grounding:
    """Asks the worker of that name whether the answer is grounded."""

    def __init__(self, verifier: str, *, ungrounded: Ungrounded = "block") -> None:
        self.verifier = verifier
        self.ungrounded = ungrounded

    def __call__(self, checked: GuardrailInput) -> Verdict:
        """Have it compared with its sources, where it has any."""
        if not checked.sources:
            return Pass()
        return Verify(self.verifier, prompt_for(checked), self._read)

    def _read(self, reply: str) -> Verdict:
        """The verdict that the verifier's words amount to."""
        found = _GROUNDED.match(reply)
        if found is None:
            raise BadReply(f"{self.verifier}'s reply says neither 'grounded' nor 'not grounded'")
        if not found[1]:
            return Pass("grounded")
        said = " ".join(found[2].split())[:LONGEST_REASON] or "the verifier gave no reason"
        reason = f"not grounded, says {self.verifier}: {said}"
        match self.ungrounded:
            case "block":
                return Block(reason)
            case "replan":
                return Replan(reason)
            case "note":
                return Note(reason)


def prompt_for(checked: GuardrailInput) -> str:
    """What the verifier is asked."""
    texts = [checked.question, checked.text]
    for source in checked.sources:
        texts += (source.subtask, source.reply)
    mark = unused_mark(TAGS, texts)
    sources = "\n\n".join(
        f'<reply{mark} step="{source.step}">\n{source.reply}\n</reply{mark}>'
        for source in checked.sources
    )
    return Template(_text("grounding.txt")).substitute(
        question=checked.question, sources=sources, answer=checked.text, mark=mark
    )


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
