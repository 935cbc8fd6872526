"""What personal data and secrets look like.

Every pattern takes time linear in the text, whatever the text: repetitions are possessive or have
a bound, those within others fit a text in one way only (six times one to four digits fit in
thousands), and a match can only begin where a run of such characters begins. What a shape alone
does not prove, a checksum does (cards, IBANs), or the mix of characters (what is assigned to a name
such as `api_key`).
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

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
