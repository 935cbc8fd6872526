"""Personal data and secrets, replaced by marks that say what stood there.

    Write to ada@example.com  →  Write to [e-mail 1]

The same value has the same mark wherever it stands in a run, and no two values share one; a mark
that somebody wrote into a text is never given again. The values themselves are held in memory for
as long as the run goes on, and nowhere else: with `restore`, those that came with the question are
put back into what is told to whoever asked.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final, Literal

from podium.guardrails.base import Block, Checked, Hook, Pass, Redact, Verdict
from podium.guardrails.kinds import KINDS, SHAPES, USUAL_KINDS, Kind, Shape

Found = Literal["redact", "block"]
"""What is done about what is found."""

MARK: Final = re.compile(rf"\[({'|'.join(KINDS)}) (\d{{1,6}})\]")
LONGEST_MARK: Final = max(map(len, KINDS)) + len("[ 999999]")

LONGEST_AT_ONCE: Final = 100_000
"""Characters that are looked through in one go, in a few hundredths of a second."""


class Redaction:
    """Looks for what `kinds` names; `found` says whether a mark takes its place, or the text goes
    no further."""

    def __init__(
        self,
        kinds: Sequence[Kind] = USUAL_KINDS,
        *,
        found: Found = "redact",
        restore: bool = False,
    ) -> None:
        self.kinds = tuple(kinds)
        self.found = found
        self.restores = restore

    def for_run(self) -> Hook:
        """The hook of one run, which knows the marks that it gave."""
        return _Restoring(self) if self.restores else _Redacting(self)


class _Redacting:
    """The marks of one run."""

    def __init__(self, redaction: Redaction) -> None:
        self._found = redaction.found
        self._shapes = [shape for shape in SHAPES if shape.kind in redaction.kinds]
        self._marks: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._last: dict[str, int] = {}

    def __call__(self, checked: Checked) -> Verdict | Awaitable[Verdict]:
        asked = checked.place == "question"
        if len(checked.text) > LONGEST_AT_ONCE:
            return self._decided_in_turns(checked.text, asked)
        return self._verdict(*self.redacted(checked.text, asked=asked))

    async def _decided_in_turns(self, text: str, asked: bool) -> Verdict:
        """Decide about a long text, and let others on the event loop work after each shape. A
        thread would do no more for them: a pattern keeps the interpreter to itself."""
        self.recall(text)
        counts: Counter[Kind] = Counter()
        for shape in self._shapes:
            text = self._without(shape, text, asked, counts)
            await asyncio.sleep(0)
        return self._verdict(text, counts)

    def _verdict(self, text: str, counts: Counter[Kind]) -> Verdict:
        if not counts:
            return Pass()
        what = ", ".join(f"{count} × {kind}" for kind, count in counts.items())
        return Block(f"it holds {what}") if self._found == "block" else Redact(text, what)

    def redacted(self, text: str, *, asked: bool) -> tuple[str, Counter[Kind]]:
        """The text with marks, and how many of each kind there are. `asked` says that it came with
        the question."""
        self.recall(text)
        counts: Counter[Kind] = Counter()
        for shape in self._shapes:
            text = self._without(shape, text, asked, counts)
        return text, counts

    def _without(self, shape: Shape, text: str, asked: bool, counts: Counter[Kind]) -> str:
        return shape.pattern.sub(partial(self._replaced, shape, counts, asked), text)

    def _replaced(
        self, shape: Shape, counts: Counter[Kind], asked: bool, match: re.Match[str]
    ) -> str:
        value = match[shape.group]
        if shape.is_one is not None and not shape.is_one(value):
            return match[0]
        counts[shape.kind] += 1
        start, end = match.start(shape.group) - match.start(), match.end(shape.group) - match.end()
        after = match[0][end:] if end else ""
        return match[0][:start] + self._mark(shape.kind, value, asked) + after

    def recall(self, text: str) -> None:
        """Leave out the marks that stand in a text already and are not ours."""
        if "[" not in text:
            return
        for match in MARK.finditer(text):
            if match[0] not in self._values:
                self._last[match[1]] = max(self._last.get(match[1], 0), int(match[2]))

    def _mark(self, kind: Kind, value: str, asked: bool) -> str:
        mark = self._marks.get(value)
        if mark is None:
            number = self._last[kind] = self._last.get(kind, 0) + 1
            mark = self._marks[value] = f"[{kind} {number}]"
            self._values[mark] = value if asked else ""
        return mark


class _Restoring(_Redacting):
    """The marks of one run, and what they stand for."""

    def restore(self, text: str) -> str:
        """The text with the values that came with the question."""
        return MARK.sub(lambda match: self._values.get(match[0]) or match[0], text)

    def mark(self, text: str) -> str:
        """The text with marks in place of whatever is found in it."""
        return self.redacted(text, asked=True)[0]
