"""Redact personal data and secrets: values become placeholders that name their kind.

    Write to ada@example.com  →  Write to [e-mail 1]

Within a run a value always has the same placeholder, and no two values share one; a placeholder
found in a text is never assigned. Values are held in memory while the run lasts. With `restore`,
those from the question are put back into what the asker gets.
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

from podium.core.events import Emit, Event, RunDone, RunStarted, StepDelta, StepDone, ToolCallDelta
from podium.engine.guardrails.base import Block, GuardrailInput, Hook, Pass, Redact, Verdict

Kind = Literal[
    "private key", "token", "key", "secret", "e-mail", "iban", "card", "ssn", "phone", "ip"
]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DEFAULT_KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind != "ip")
"""All but IP addresses, which many questions are about."""

_NOT_IN_WORD: Final = r"(?<![A-Za-z0-9_\-])"
_VENDOR_KEYS: Final = (
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
_LABELS: Final = (
    r"api[_\- ]?key|access[_\- ]?key|secret[_\- ]?key|client[_\- ]?secret|secret|token"
    r"|passw(?:or)?d|passphrase|pwd|credentials?"
)


class Detector(NamedTuple):
    """Finds values of one kind. `group` is the value in a match; `is_valid` confirms it."""

    kind: Kind
    pattern: re.Pattern[str]
    group: int = 0
    is_valid: Callable[[str], bool] | None = None


def is_card_number(number: str) -> bool:
    """True if the digits have the checksum of a payment card."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    number = text.replace(" ", "")
    if not 15 <= len(number) <= 34:
        return False
    turned = number[4:] + number[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def is_random(value: str) -> bool:
    """True if a value looks generated: letters and digits mixed, with enough entropy."""
    if len(value) < 8 or not any(c.isdigit() for c in value) or not any(c.isalpha() for c in value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= MIN_ENTROPY_BITS


MIN_ENTROPY_BITS: Final = 2.75
"""Per character: of eight characters, all but one differ."""


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _detector(
    kind: Kind, pattern: str, group: int = 0, is_valid: Callable[[str], bool] | None = None
) -> Detector:
    return Detector(kind, re.compile(pattern), group, is_valid)


DETECTORS: Final[tuple[Detector, ...]] = (
    _detector(
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^\-]|-(?!----)){0,20000}+"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    _detector(
        "token",
        _NOT_IN_WORD
        + r"eyJ[A-Za-z0-9_\-]{8,4000}+\.eyJ[A-Za-z0-9_\-]{8,8000}+\.[A-Za-z0-9_\-]{8,1000}+",
    ),
    _detector("key", (_NOT_IN_WORD + rf"(?:{'|'.join(_VENDOR_KEYS)})")),
    _detector("token", r"\bBearer {1,4}([A-Za-z0-9._~+/\-]{20,4000}+=*+)", 1),
    _detector("secret", r"://[^\s/:@\[]{1,100}:([^\s/:@\[]{1,200})@", 1),
    _detector(
        "secret",
        rf"(?i)(?:{_LABELS})[A-Za-z0-9_\-]{{0,20}}+[\"'`]?\s{{0,4}}+(?:=>|:=|=|:|\bis\b)\s{{0,4}}+"
        rf"[\"'`]?([^\s\"'`,;<>()\[\]{{}}]{{8,300}}+)",
        1,
        is_random,
    ),
    _detector(
        "e-mail",
        r"(?<![\w.%+\-])[\w.%+\-]{1,64}@(?:[^\W_](?:[\w\-]{0,61})\.){1,8}[^\W\d_]{2,24}(?!\w)",
    ),
    _detector(
        "iban",
        r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"
        r"(?![A-Za-z0-9])",
        is_valid=is_iban,
    ),
    _detector(
        "card",
        r"(?<![\d.\-])(?:[2-6]\d{3}([ \-])\d{4}\1\d{4}\1\d{4}|3[47]\d\d([ \-])\d{6}\2\d{5}"
        r"|[2-6]\d{12,18})(?![\d\-]|\.\d)",
        is_valid=is_card_number,
    ),
    _detector(
        "ssn",
        r"(?<![\d\-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d\-])",
    ),
    _detector(
        "phone",
        r"(?<![\w+])(?:\+|00)[1-9](?:\)?+[ .\-/]?+\(?+\d){6,14}(?!\d)"
        r"|(?<![\d.\-/])(?:1[\-. ])?(?:\(\d{3}\) ?|\d{3}[\-.])\d{3}[\-. ]\d{4}(?![\d\-])"
        r"|(?<![\d.\-/])0\d{2,4} ?[/\-] ?\d{4,10}(?![\d\-/])",
    ),
    _detector(
        "ip",
        r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)"
        r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])",
        is_valid=_is_ip,
    ),
)
"""In order of application: the most certain first."""


RedactionAction = Literal["redact", "block"]
PLACEHOLDER: Final = re.compile(rf"\[({'|'.join(KINDS)}) (\d{{1,6}})\]")
MAX_PLACEHOLDER_CHARS: Final = max(map(len, KINDS)) + len("[ 999999]")

MAX_CHARS_AT_ONCE: Final = 100_000
"""Longer texts yield to the event loop between detectors."""


class Redaction:
    """Find personal data and secrets.

    Args:
        kinds: What to find; by default all but IP addresses.
        action: `"redact"` values, or `"block"` texts that hold one.
        restore: Put the values back into the answer.

    """

    def __init__(
        self,
        kinds: Sequence[Kind] = DEFAULT_KINDS,
        *,
        action: RedactionAction = "redact",
        restore: bool = False,
    ) -> None:
        self.kinds = tuple(kinds)
        self.action = action
        self.restores = restore

    def for_run(self) -> Hook:
        return _RestoringHook(self) if self.restores else _RedactingHook(self)


class _RedactingHook:
    def __init__(self, redaction: Redaction) -> None:
        self._action = redaction.action
        self._detectors = [detector for detector in DETECTORS if detector.kind in redaction.kinds]
        self._placeholders: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._last: dict[str, int] = {}

    def __call__(self, item: GuardrailInput) -> Verdict | Awaitable[Verdict]:
        restorable = item.stage == "question"
        if len(item.text) > MAX_CHARS_AT_ONCE:
            return self._check_long(item.text, restorable)
        return self._verdict(*self.redact_text(item.text, restorable=restorable))

    async def _check_long(self, text: str, restorable: bool) -> Verdict:
        """Check a long text and yield after each detector; a thread would hold the GIL as well."""
        self.observe(text)
        counts: Counter[Kind] = Counter()
        for detector in self._detectors:
            text = self._apply(detector, text, restorable, counts)
            await asyncio.sleep(0)
        return self._verdict(text, counts)

    def _verdict(self, text: str, counts: Counter[Kind]) -> Verdict:
        if not counts:
            return Pass()
        what = ", ".join(f"{count} × {kind}" for kind, count in counts.items())
        return Block(f"it contains {what}") if self._action == "block" else Redact(text, what)

    def redact_text(self, text: str, *, restorable: bool) -> tuple[str, Counter[Kind]]:
        self.observe(text)
        counts: Counter[Kind] = Counter()
        for detector in self._detectors:
            text = self._apply(detector, text, restorable, counts)
        return text, counts

    def _apply(self, detector: Detector, text: str, restorable: bool, counts: Counter[Kind]) -> str:
        return detector.pattern.sub(partial(self._replace, detector, counts, restorable), text)

    def _replace(
        self, detector: Detector, counts: Counter[Kind], restorable: bool, match: re.Match[str]
    ) -> str:
        value, group = match[detector.group], detector.group
        if detector.is_valid is not None and not detector.is_valid(value):
            return match[0]
        counts[detector.kind] += 1
        start, end = match.start(group) - match.start(), match.end(group) - match.end()
        after = match[0][end:] if end else ""
        return match[0][:start] + self._placeholder(detector.kind, value, restorable) + after

    def observe(self, text: str) -> None:
        """Never assign placeholders that a text already holds."""
        if "[" not in text:
            return
        for match in PLACEHOLDER.finditer(text):
            if match[0] not in self._values:
                self._last[match[1]] = max(self._last.get(match[1], 0), int(match[2]))

    def _placeholder(self, kind: Kind, value: str, restorable: bool) -> str:
        placeholder = self._placeholders.get(value)
        if placeholder is None:
            number = self._last[kind] = self._last.get(kind, 0) + 1
            placeholder = self._placeholders[value] = f"[{kind} {number}]"
            self._values[placeholder] = value if restorable else ""
        return placeholder


class _RestoringHook(_RedactingHook):
    def restore(self, text: str) -> str:
        return PLACEHOLDER.sub(lambda match: self._values.get(match[0]) or match[0], text)

    def redact(self, text: str) -> str:
        return self.redact_text(text, restorable=True)[0]


class StreamRestorer:
    """Restores one answer piece by piece; a placeholder may be split between pieces."""

    def __init__(self, restore: Callable[[str], str]) -> None:
        self._restore = restore
        self._held = ""

    def receive(self, text: str) -> str:
        """Take the next piece and return what to send now."""
        text = self._held + text
        opened = text.rfind("[")
        whole = opened < 0 or "]" in text[opened:] or len(text) - opened >= MAX_PLACEHOLDER_CHARS
        ready, self._held = (text, "") if whole else (text[:opened], text[opened:])
        return self._restore(ready)

    def rest(self) -> str:
        """Return what was held back at the end."""
        held, self._held = self._held, ""
        return held


def restore_events(emit: Emit) -> Emit:
    """Return an `Emit` that restores redacted values in the answer, for the asker."""
    restore: Callable[[str], str] | None = None
    restorers: dict[tuple[str, int, int], StreamRestorer] = {}

    def emit_restored(event: Event) -> None:
        nonlocal restore
        match event:
            case RunStarted():
                restore = restore or event.restore
            case StepDelta() if restore is not None and not event.thinking:
                step_key = (event.run_id, event.round, event.index)
                text = restorers.setdefault(step_key, StreamRestorer(restore)).receive(event.text)
                if not text:
                    return
                event = replace(event, text=text)
            case ToolCallDelta() if restore is not None:
                return  # arguments are restored as a whole
            case StepDone(run_id=run_id, step=step):
                restorer = restorers.pop((run_id, step.round, step.index), None)
                if restorer is not None and (rest := restorer.rest()):
                    emit(StepDelta(run_id, step.round, step.index, rest))
            case RunDone(run=run) if restore is not None and run.answer is not None:
                event = RunDone(replace(run, answer=restore(run.answer)))
        emit(event)

    return emit_restored
