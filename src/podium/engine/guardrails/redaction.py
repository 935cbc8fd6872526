"""Personal data and secrets, replaced by marks that say what stood there.

    Write to ada@example.com  →  Write to [e-mail 1]

The same value has the same mark wherever it stands in a run, and no two values share one; a mark
that somebody wrote into a text is never given again. The values themselves are held in memory for
as long as the run goes on, and nowhere else: with `restore`, those that came with the question are
put back into what is told to whoever asked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

from podium.core.events import Emit, Event, RunDone, RunStarted, StepDelta, StepDone
from podium.engine.guardrails.base import Block, GuardrailInput, Hook, Pass, Redact, Verdict

Kind = Literal[
    "private key", "token", "key", "secret", "e-mail", "iban", "card", "ssn", "phone", "ip"
]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
USUAL_KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind != "ip")
"""All but addresses of machines, which many questions are about."""

_BEFORE: Final = r"(?<![A-Za-z0-9_\-])"
_VENDORS: Final = (
    r"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_\-]{20,200}+",  # OpenAI, Anthropic, …
    r"(?:sk|pk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,200}+",  # Stripe, and those like it
    r"gh[opsur]_[A-Za-z0-9]{36,255}+",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,255}+",
    r"glpat-[A-Za-z0-9_\-]{20,100}+",  # GitLab
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,250}+",  # Slack
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"AIza[A-Za-z0-9_\-]{35,60}+",  # Google
    r"ya29\.[A-Za-z0-9_\-]{20,300}+",
    r"hf_[A-Za-z0-9]{30,100}+",  # Hugging Face
    r"gsk_[A-Za-z0-9]{40,100}+",  # Groq
    r"(?:xai|nvapi|pplx|fw|tvly|csk)-[A-Za-z0-9_\-]{24,200}+",  # xAI, NVIDIA, Perplexity, …
    r"npm_[A-Za-z0-9]{36,100}+",
    r"pypi-[A-Za-z0-9_\-]{40,400}+",
    r"dop_v1_[a-f0-9]{64}",  # DigitalOcean
    r"SG\.[A-Za-z0-9_\-]{16,64}+\.[A-Za-z0-9_\-]{16,100}+",  # SendGrid
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",  # Shopify
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,70}+",
    r"pk_[0-9a-f]{12}_[A-Za-z0-9_\-]{20,100}+",  # our own
)
_NAMES: Final = (
    r"api[_\- ]?key|access[_\- ]?key|secret[_\- ]?key|client[_\- ]?secret|secret|token"
    r"|passw(?:or)?d|passphrase|pwd|credentials?"
)


class Shape(NamedTuple):
    """How something of a kind is found. `group` is the part of a match that is the value, and
    `is_one` decides where the shape alone does not."""

    kind: Kind
    pattern: re.Pattern[str]
    group: int = 0
    is_one: Callable[[str], bool] | None = None


def luhn(number: str) -> bool:
    """Whether the digits are those of a payment card, by their checksum."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def iban(text: str) -> bool:
    """Whether it is an account's number, by its checksum."""
    number = text.replace(" ", "")
    if not 15 <= len(number) <= 34:
        return False
    turned = number[4:] + number[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def looks_made(value: str) -> bool:
    """Whether a value was made at random rather than said: letters and digits are mixed, and no
    few characters make up most of it."""
    if len(value) < 8 or not any(c.isdigit() for c in value) or not any(c.isalpha() for c in value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= LEAST_ENTROPY


LEAST_ENTROPY: Final = 2.75
"""Bits a character: of eight characters, all but one differ."""


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


SHAPES: Final[tuple[Shape, ...]] = (
    Shape(
        "private key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^\-]|-(?!----)){0,20000}+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
    Shape(
        "token",
        re.compile(
            _BEFORE
            + r"eyJ[A-Za-z0-9_\-]{8,4000}+\.eyJ[A-Za-z0-9_\-]{8,8000}+\.[A-Za-z0-9_\-]{8,1000}+"
        ),
    ),
    Shape("key", re.compile(_BEFORE + rf"(?:{'|'.join(_VENDORS)})")),
    Shape("token", re.compile(r"\bBearer {1,4}([A-Za-z0-9._~+/\-]{20,4000}+=*+)"), 1),
    Shape("secret", re.compile(r"://[^\s/:@\[]{1,100}:([^\s/:@\[]{1,200})@"), 1),
    Shape(
        "secret",
        re.compile(
            rf"(?:{_NAMES})[A-Za-z0-9_\-]{{0,20}}+[\"'`]?\s{{0,4}}+(?:=>|:=|=|:|\bis\b)\s{{0,4}}+"
            rf"[\"'`]?([^\s\"'`,;<>()\[\]{{}}]{{8,300}}+)",
            re.IGNORECASE,
        ),
        1,
        looks_made,
    ),
    Shape(
        "e-mail",
        re.compile(
            r"(?<![\w.%+\-])[\w.%+\-]{1,64}@(?:[^\W_](?:[\w\-]{0,61})\.){1,8}[^\W\d_]{2,24}(?!\w)"
        ),
    ),
    Shape(
        "iban",
        re.compile(
            r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"
            r"(?![A-Za-z0-9])"
        ),
        is_one=iban,
    ),
    Shape(
        "card",
        re.compile(
            r"(?<![\d.\-])(?:[2-6]\d{3}([ \-])\d{4}\1\d{4}\1\d{4}|3[47]\d\d([ \-])\d{6}\2\d{5}"
            r"|[2-6]\d{12,18})(?![\d\-]|\.\d)"
        ),
        is_one=luhn,
    ),
    Shape(
        "ssn",
        re.compile(r"(?<![\d\-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d\-])"),
    ),
    Shape(
        "phone",
        re.compile(
            r"(?<![\w+])(?:\+|00)[1-9](?:\)?+[ .\-/]?+\(?+\d){6,14}(?!\d)"
            r"|(?<![\d.\-/])(?:1[\-. ])?(?:\(\d{3}\) ?|\d{3}[\-.])\d{3}[\-. ]\d{4}(?![\d\-])"
            r"|(?<![\d.\-/])0\d{2,4} ?[/\-] ?\d{4,10}(?![\d\-/])"
        ),
    ),
    Shape(
        "ip",
        re.compile(
            r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)"
            r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
        ),
        is_one=_is_ip,
    ),
)
"""In the order in which they are looked for: what is certain first."""


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

    def __call__(self, checked: GuardrailInput) -> Verdict | Awaitable[Verdict]:
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


class RestoredWords:
    """The words of one answer, restored piece by piece."""

    __slots__ = ("_held", "_restore")

    def __init__(self, restore: Callable[[str], str]) -> None:
        self._restore = restore
        self._held = ""

    def hear(self, text: str) -> str:
        """Take the next piece; what is to be told now."""
        text = self._held + text
        opened = text.rfind("[")
        whole = opened < 0 or "]" in text[opened:] or len(text) - opened >= LONGEST_MARK
        told, self._held = (text, "") if whole else (text[:opened], text[opened:])
        return self._restore(told)

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held


def restoring(emit: Emit) -> Emit:
    """Tell of a run as whoever asked is to hear of it: the pieces of the answer, and the run at its
    end, with what guardrails took out of the question."""
    restore: Callable[[str], str] | None = None
    words: dict[tuple[str, int, int], RestoredWords] = {}

    def tell(event: Event) -> None:
        nonlocal restore
        match event:
            case RunStarted():
                restore = restore or event.restore
            case StepDelta() if restore is not None and not event.thinking:
                place = (event.run_id, event.round, event.index)
                text = words.setdefault(place, RestoredWords(restore)).hear(event.text)
                if not text:
                    return
                event = replace(event, text=text)
            case StepDone(run_id=run_id, step=step):
                heard = words.pop((run_id, step.round, step.index), None)
                if heard is not None and (rest := heard.rest()):
                    emit(StepDelta(run_id, step.round, step.index, rest))
            case RunDone(run=run) if restore is not None and run.answer is not None:
                event = RunDone(replace(run, answer=restore(run.answer)))
        emit(event)

    return tell
