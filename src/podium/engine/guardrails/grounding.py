"""Check that an answer is grounded: another worker compares it with the replies it rests on.

Without other replies there is nothing to compare, and no worker is asked.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from string import Template
from typing import Final, Literal

from podium.core.errors import BadReply
from podium.core.tags import unused_suffix
from podium.engine.guardrails.base import Block, GuardrailInput, Note, Pass, Replan, Verdict, Verify

GroundingAction = Literal["block", "replan", "note"]
TAGS: Final = ("question", "reply", "answer")

MAX_REASON_CHARS: Final = 400

_GROUNDED: Final = re.compile(r"\W{0,20}(not\s{1,4})?grounded\b\W{0,20}(.{0,2000})", re.I | re.S)


class Grounding:
    """Ask a worker whether the answer is grounded in the other steps' replies.

    Args:
        verifier: The worker's name.
        action: `"block"` an answer that is not grounded, `"replan"`, or `"note"` it.

    """

    def __init__(self, verifier: str, *, action: GroundingAction = "block") -> None:
        self.verifier = verifier
        self.action = action

    def __call__(self, item: GuardrailInput) -> Verdict:
        if not item.sources:
            return Pass()
        return Verify(self.verifier, prompt_for(item), self._read)

    def _read(self, reply: str) -> Verdict:
        found = _GROUNDED.match(reply)
        if found is None:
            raise BadReply(f"{self.verifier}'s reply says neither 'grounded' nor 'not grounded'")
        if not found[1]:
            return Pass("grounded")
        detail = " ".join(found[2].split())[:MAX_REASON_CHARS] or "the verifier gave no reason"
        reason = f"not grounded, says {self.verifier}: {detail}"
        match self.action:
            case "block":
                return Block(reason)
            case "replan":
                return Replan(reason)
            case "note":
                return Note(reason)


def prompt_for(item: GuardrailInput) -> str:
    texts = [item.question, item.text]
    for source in item.sources:
        texts += (source.subtask, source.reply)
    suffix = unused_suffix(TAGS, texts)
    sources = "\n\n".join(
        f'<reply{suffix} step="{source.step}">\n{source.reply}\n</reply{suffix}>'
        for source in item.sources
    )
    return Template(_text("grounding.txt")).substitute(
        question=item.question, sources=sources, answer=item.text, suffix=suffix
    )


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
