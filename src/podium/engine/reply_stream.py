"""What is told of the final step's reply while it comes, and what its reader has of it.

A reply may be made of several calls: one that broke off and the one that went on with it, and in
between the use of tools. What was told stands, so the step's reply is what the pieces come to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from podium.core.events import StepDelta
from podium.core.request import Delta, Reply
from podium.engine.assignment import Scope

if TYPE_CHECKING:
    from podium.engine.execution import Execution


class ResumableText:
    """What has been told of a reply, and what of it the calls before the present one told."""

    __slots__ = ("_held", "_may_repeat", "_told", "kept")

    def __init__(self) -> None:
        self._told: list[str] = []
        self._held = 0
        self._may_repeat = False
        self.kept = ""

    @property
    def told(self) -> str:
        """All that was told so far."""
        return "".join(self._told)

    @property
    def has_begun(self) -> bool:
        """Whether anything was told."""
        return bool(self._told)

    def hear(self, text: str) -> str:
        """Take the next piece; what is to be told of it."""
        if self._may_repeat:
            if self.kept.startswith(text, self._held):
                self._held += len(text)
                return ""
            text = (self.kept[: self._held] + text).removeprefix(self.kept)
            self._may_repeat = False
        self._told.append(text)
        return text

    def break_off(self) -> None:
        """The present call has failed: the next one goes on with what was told."""
        self.kept = self.told
        self._may_repeat = bool(self.kept)
        self._held = 0

    def whole(self, text: str) -> str:
        """The whole reply, when the last call's is `text`."""
        return text if text.startswith(self.kept) else self.kept + text


GAP: Final = "\n\n"
"""Stands between what was said before the use of tools and what is said after it."""


class ReplyStream:
    """The reply of one final step. It is told only if it `streams`; if it `must_fit` a schema,
    then whole, once it does. Where guardrails look at replies, nothing is told before they have:
    no thinking at all, and if they look at answers, nothing before the whole."""

    __slots__ = (
        "_held",
        "_holds",
        "_index",
        "_must_fit",
        "_round",
        "_scope",
        "_spoken",
        "_words",
        "streams",
    )

    def __init__(
        self, scope: Scope, round_: int, index: int, *, streams: bool, must_fit: bool
    ) -> None:
        self._holds = scope.inspection is not None
        self._held = scope.inspection is not None and scope.inspection.answers
        self._scope = scope
        self._round = round_
        self._index = index
        self._must_fit = must_fit
        self._words = ResumableText()
        self._spoken: tuple[str, ...] = ()
        self.streams = streams

    @property
    def kept(self) -> str:
        """How the reply begins, where a call broke off that had told so much of it."""
        return self._words.kept

    @property
    def so_far(self) -> str:
        """What was told since the step began or was taken up."""
        if self._held:
            return ""
        return GAP.join(filter(None, (*self._spoken, self._words.told)))

    def hear(self, delta: Delta) -> None:
        """A piece of the reply has come."""
        if self._holds:
            return
        if delta.kind == "thinking":
            self._tell(delta.text, thinking=True)
        elif not self._must_fit:
            opening = GAP if self._spoken and not self._words.has_begun else ""
            if text := self._words.hear(delta.text):
                self._tell(opening + text)

    def break_off(self) -> None:
        """The present call has failed; the next one goes on with what was told."""
        self._words.break_off()

    def completed(self, reply: Reply) -> Reply:
        """The reply of the last call, with what earlier ones said of it; what was held back of
        its words is told."""
        if not self._words.kept:
            return reply
        told, whole = self._words.told, self._words.whole(reply.text)
        if len(whole) > len(told):
            self._tell(whole[len(told) :])
        return replace(reply, text=whole)

    def say_before_tools(self, text: str, *, is_told: bool = False) -> None:
        """Words that came with a call of tools have been said; others follow. A nested run has
        told its own."""
        if text and not self._must_fit:
            if self._holds and not self._held and not is_told:
                self._tell_now(GAP + text if self._spoken else text)
            self._spoken += (text,)
        self._words = ResumableText()

    def concluded(self, reply: Reply) -> Reply:
        """The whole reply, with what was said before the use of tools."""
        if not self._spoken:
            return reply
        return replace(reply, text=GAP.join((*self._spoken, reply.text)))

    def tell_rest(self, text: str) -> None:
        """Tell what was held back of the whole reply, now that it stands."""
        if self._must_fit or self._held:
            self._tell_now(text)
        elif self._holds:
            told = GAP.join(self._spoken)
            self._tell_now(text[len(told) :])

    def _tell_now(self, text: str) -> None:
        if self.streams and text:
            self._tell(text)

    def _tell(self, text: str, *, thinking: bool = False) -> None:
        if self._scope.emit is not None:
            event = StepDelta(self._scope.run_id, self._round, self._index, text, thinking)
            self._scope.emit(event)


def begin_telling(execution: Execution, index: int) -> ReplyStream | None:
    """What is told of that final step; None where nothing will be, nor said before the use of
    tools."""
    if execution.is_plain and not execution.stream:
        return None
    return ReplyStream(
        execution.scope,
        execution.assignment.round,
        index,
        streams=execution.stream,
        must_fit=execution.assignment.response_options.schema is not None,
    )
