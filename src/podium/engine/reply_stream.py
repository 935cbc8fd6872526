"""Stream the final step's reply, across retries and tool turns.

A reply may span several calls: one that broke off, the one that continues it, tool turns between.
What was sent stands, so the step's reply is the concatenation of what was sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from podium.core.events import StepDelta, ToolCallDelta
from podium.core.request import Delta, Reply

if TYPE_CHECKING:
    from podium.engine.execution import Execution

TEXT_SEPARATOR: Final = "\n\n"
"""Separates text before a tool call from text after it."""


class ResumableText:
    """The text sent so far; `prior_text` is the part that earlier, failed calls sent."""

    def __init__(self, prior_text: str = "") -> None:
        self._pieces: list[str] = []
        self._repeated = 0
        self._may_repeat = bool(prior_text)
        self.prior_text = prior_text

    @property
    def sent(self) -> str:
        return "".join(self._pieces)

    @property
    def has_begun(self) -> bool:
        """True once anything was sent."""
        return bool(self._pieces)

    def receive(self, text: str) -> str:
        """Take the next piece and return what to send of it, without repeating `prior_text`."""
        if self._may_repeat:
            if self.prior_text.startswith(text, self._repeated):
                self._repeated += len(text)
                return ""
            text = (self.prior_text[: self._repeated] + text).removeprefix(self.prior_text)
            self._may_repeat = False
        self._pieces.append(text)
        return text

    def break_off(self) -> None:
        """Prepare for another call that continues the text."""
        self.prior_text = self.sent
        self._may_repeat = bool(self.prior_text)
        self._repeated = 0

    def whole(self, text: str) -> str:
        return text if text.startswith(self.prior_text) else self.prior_text + text


class ReplyStream:
    """The reply of one final step, sent as `StepDelta` events if it `streams`.

    A reply that must fit a schema is sent whole, once it does. With guardrails on replies, nothing
    is sent before they pass, and no thinking; with guardrails on answers, only the whole is. Calls
    of the client's tools are sent as they come; once `has_sent_calls`, nothing can be retried.
    """

    def __init__(self, execution: Execution, index: int, *, streams: bool) -> None:
        reply_checker = execution.reply_checker
        self._after_reply_check = reply_checker is not None
        self._whole_only = reply_checker is not None and reply_checker.checks_answers
        self._must_fit = execution.run.response_options.schema is not None
        self._execution = execution
        self._index = index
        self._text = ResumableText()
        self.prior_text = ""
        """The start of the reply that a failed call already sent."""
        self.before_tools: tuple[str, ...] = ()
        """The texts that came with tool calls."""
        self.holds_back = self._after_reply_check or self._must_fit
        """True if some of the reply is sent only once it stands."""
        self._calls: dict[int, Delta] = {}
        self.has_sent_calls = False
        self.streams = streams

    @property
    def sent(self) -> str:
        """Everything sent since the step started or was resumed."""
        if self._whole_only:
            return ""
        return TEXT_SEPARATOR.join(filter(None, (*self.before_tools, self._text.sent)))

    def receive(self, delta: Delta) -> None:
        if self._after_reply_check:
            return
        if delta.kind == "thinking":
            self._emit(delta.text, thinking=True)
        elif delta.kind == "tool_call":
            self._receive_call(delta)
        elif delta.kind == "text" and not self._must_fit:
            opening = TEXT_SEPARATOR if self.before_tools and not self._text.has_begun else ""
            if text := self._text.receive(delta.text):
                self._emit(opening + text)

    def _receive_call(self, delta: Delta) -> None:
        """Send a piece of a call, unless its id will be replaced or its tool is Podium's own."""
        run, known = self._execution.run, self._calls
        options = run.response_options
        if delta.call not in known:
            if all(tool.name != delta.name for tool in options.tools):
                return
            known[delta.call] = replace(delta, call=len(known))
        first = known[delta.call]
        ids = [call.id for call in known.values()]
        taken = first.id in self._execution.context.call_ids or ids.count(first.id) > 1
        if taken or not first.id or (first.call and not options.parallel_tools):
            return
        self.has_sent_calls = True
        if self._execution.emit is not None:
            sent = replace(delta, call=first.call)
            at = self._execution.round, self._index
            self._execution.emit(ToolCallDelta(run.id, *at, sent))

    def break_off(self) -> None:
        """Prepare for another call that continues the reply."""
        self._text.break_off()
        self.prior_text = self._text.prior_text

    def complete(self, reply: Reply) -> Reply:
        """Return the last call's reply with what earlier ones sent, and send what is missing."""
        sent, whole = self._text.sent, self._text.whole(reply.text)
        if len(whole) > len(sent):
            self._emit(whole[len(sent) :])
        return replace(reply, text=whole)

    def add_before_tools(self, text: str, *, is_sent: bool = False) -> None:
        """Keep the text that came with a tool call; a nested run has sent its own."""
        if text and not self._must_fit:
            if self._after_reply_check and not self._whole_only and not is_sent:
                self._send(TEXT_SEPARATOR + text if self.before_tools else text)
            self.before_tools += (text,)
        self._text = ResumableText()
        self.prior_text = ""
        self._calls = {}

    def conclude(self, reply: Reply) -> Reply:
        """Return the whole reply, with the text from before tool calls."""
        return replace(reply, text=TEXT_SEPARATOR.join((*self.before_tools, reply.text)))

    def send_rest(self, text: str) -> None:
        """Send what was held back, now that the whole reply stands."""
        if self._must_fit or self._whole_only:
            self._send(text)
        elif self._after_reply_check:
            sent = TEXT_SEPARATOR.join(self.before_tools)
            self._send(text[len(sent) :])

    def _send(self, text: str) -> None:
        if self.streams and text:
            self._emit(text)

    def _emit(self, text: str, *, thinking: bool = False) -> None:
        execution = self._execution
        if execution.emit is not None:
            event = StepDelta(execution.run.id, execution.round, self._index, text, thinking)
            execution.emit(event)
