"""Personal data and secrets become marks, in time linear in the text."""

from __future__ import annotations

import asyncio
import inspect
import time
from itertools import product

import pytest

from podium.core.run import GuardrailStage
from podium.engine.guardrails import (
    KINDS,
    Block,
    GuardrailInput,
    Kind,
    Pass,
    Redact,
    Redaction,
    Verdict,
)
from podium.engine.guardrails.base import HookFactory, RestoringHook
from podium.engine.guardrails.redaction import (
    DETECTORS,
    MAX_CHARS_AT_ONCE,
    StreamRestorer,
    is_card_number,
    is_iban,
    is_random,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE+/abc\nDEK-Info: x\n-----END RSA PRIVATE KEY-----"

FOUND = [
    ("ada@example.com", "e-mail"),
    ("bob.smith+list@mail.example.co.uk", "e-mail"),
    ("jürgen@müller.de", "e-mail"),
    ("4111 1111 1111 1111", "card"),
    ("4111-1111-1111-1111", "card"),
    ("378282246310005", "card"),
    ("3782 822463 10005", "card"),
    ("DE89 3704 0044 0532 0130 00", "iban"),
    ("GB82WEST12345698765432", "iban"),
    ("078-05-1120", "ssn"),
    ("+49 30 1234567", "phone"),
    ("+1-202-555-0143", "phone"),
    ("(555) 123-4567", "phone"),
    ("555-123-4567", "phone"),
    ("+49 (171) 1234567", "phone"),
    ("0041 44 668 18 00", "phone"),
    ("sk-proj-abcdefghijklmnopqrstuvwxyz0123", "key"),
    ("sk-ant-api03-abcdefghijklmnopqrstuvwxyz", "key"),
    ("AKIAIOSFODNN7EXAMPLE", "key"),
    ("pk_4f9a1c2b77d0_rJ2abcdefghijklmnopqrstuvwxyz-0123456789ABCDE", "key"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "key"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "key"),
    ("xoxb-123456789012-abcdefghij", "key"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "key"),
    (JWT, "token"),
    (PEM, "private key"),
    ("10.0.0.1", "ip"),
    ("2001:db8::1", "ip"),
]

LEFT = [
    "version 3.11.2 of 2026-11-15 at 12:30:45",
    "order 12345678901234567, total 1700000000",
    "4111 1111 1111 1112",  # its checksum is wrong
    "DE89370400440532013001",
    "000-12-3456",
    "token: information",
    "the secret is friendship",
    "pi is 3.14159265358979",
    "a @ b, user@localhost",
    "1.2.3.4.5",
    "[e-mail 1] and [card 12]",
]

LONG = 100_000
SEEDS = (
    *(
        "a",
        "1",
        "-",
        "eyJ",
        "eyJa-",
        "eyJaaaaaaaaa.",
        "a.",
        "sk-",
        "sk-a",
        "+1 ",
        "(",
        "a@",
        "a@a.",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "4111 ", "1 ", "1-", "://a:", "token=", "0"),
    *("api_key", "DE89 ", "1.1.1.", "::", "a:", "[e-mail 1]", "Bearer ", "secretsecret=", "é"),
    *("password is ", "token \n\n\n\n", "=\"'", "[", "0-", "@"),
    *("+" + "1" * 40 + " ", "00" + "1" * 40 + " ", "+1" + "(1)" * 14 + "x "),
)
PIECES: dict[Kind, tuple[str, ...]] = {
    "private key": ("-----BEGIN ", "PRIVATE KEY", "-----", "A", " ", "-----END ", " BLOCK", "-"),
    "token": ("eyJ", "a" * 9, ".", "Bearer ", "=", "-", "/", " ", "_"),
    "key": (
        "sk-",
        "ant-",
        "sk_",
        "live_",
        "ya29.",
        "SG.",
        "a" * 20,
        ".",
        "pk_",
        "0",
        "-",
        "_",
        " ",
    ),
    "secret": ("://", "a", ":", "@", "[", "secret", "api key", "_", "'", "=>", " is ", " ", "a1b2"),
    "e-mail": ("a", ".", "@", "a" * 61, "-", "_", "1", "é", " "),
    "iban": ("DE89", " ", "AAAA", "89", "A", "a"),
    "card": ("4111", " ", "-", "1", "37", "111111", "."),
    "ssn": ("078", "-", "05", "1120", "9", " "),
    "phone": ("+", "00", "1", "1111", " ", ".", "/", "(", ")", "(1)", "111-", "a"),
    "ip": ("1", ".", "1.1.1.1", ":", "a", "abcd", "_", "é", " "),
}
"""What texts of each kind are put together from."""


def hook(*, action: str = "redact", restore: bool = False) -> HookFactory:
    assert action in ("redact", "block")
    return Redaction(KINDS, action="block" if action == "block" else "redact", restore=restore)


def verdict(text: str, where: GuardrailStage = "question") -> Verdict:
    decided = hook().for_run()(GuardrailInput(stage=where, text=text, run_id="run_1", question=""))
    assert isinstance(decided, Pass | Block | Redact)
    return decided


@pytest.mark.parametrize(("value", "kind"), FOUND)
def test_a_value_becomes_a_mark_of_its_kind(value: str, kind: str) -> None:
    decided = verdict(f"Here: {value}, as you asked.")
    assert decided == Redact(f"Here: [{kind} 1], as you asked.", f"1 × {kind}")


@pytest.mark.parametrize("text", LEFT)
def test_lookalikes_are_left_alone(text: str) -> None:
    assert verdict(text) == Pass()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('api_key = "a8f5f167f44f4964e6c998"', 'api_key = "[secret 1]"'),
        ('{"client_secret": "zzz9Xk21mQ"}', '{"client_secret": "[secret 1]"}'),
        ("PASSWORD: hunter2x9Z", "PASSWORD: [secret 1]"),
        ("postgres://bob:s3cret@host/db", "postgres://bob:[secret 1]@host/db"),
        ("Authorization: Bearer abcdefghijklmnopqrst1", "Authorization: Bearer [token 1]"),
    ],
)
def test_of_an_assignment_only_the_value_goes(text: str, left: str) -> None:
    decided = verdict(text)
    assert isinstance(decided, Redact)
    assert decided.text == left


def test_a_phone_number_ends_where_its_digits_do() -> None:
    decided = verdict("(+41 44 668 18 00) or +41 44 668 18 01 20261115")
    assert decided == Redact("([phone 1]) or [phone 2] 20261115", "2 × phone")


def test_the_same_value_has_the_same_mark_and_no_two_values_share_one() -> None:
    run = hook().for_run()

    def left(text: str) -> str:
        decided = run(GuardrailInput(stage="reply", text=text, run_id="run_1", question=""))
        assert isinstance(decided, Redact)
        return decided.text

    assert left("a@x.org b@x.org a@x.org") == "[e-mail 1] [e-mail 2] [e-mail 1]"
    assert left("c@x.org, then b@x.org") == "[e-mail 3], then [e-mail 2]"


def test_a_placeholder_found_in_a_text_is_not_assigned() -> None:
    decided = verdict("You said [e-mail 1]; mine is a@x.org")
    assert decided == Redact("You said [e-mail 1]; mine is [e-mail 2]", "1 × e-mail")


def test_findings_can_block_instead() -> None:
    run = hook(action="block").for_run()
    decided = run(GuardrailInput(stage="question", text="a@x.org", run_id="run_1", question=""))
    assert decided == Block("it contains 1 × e-mail")


async def test_a_long_text_is_redacted_as_others_and_lets_them_work_meanwhile() -> None:
    run = hook().for_run()
    text = f"a@x.org, 555-123-4567{' ' * MAX_CHARS_AT_ONCE}b@x.org"
    deciding = run(GuardrailInput(stage="question", text=text, run_id="run_1", question=""))
    assert inspect.isawaitable(deciding)
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    worker = asyncio.create_task(work())
    decided = await deciding
    worker.cancel()
    left = f"[e-mail 1], [phone 1]{' ' * MAX_CHARS_AT_ONCE}[e-mail 2]"
    assert decided == Redact(left, "2 × e-mail, 1 × phone")
    assert turns >= len(DETECTORS) - 1


def test_only_values_that_came_with_the_question_are_put_back() -> None:
    run = hook(restore=True).for_run()
    run(GuardrailInput(stage="question", text="I am a@x.org", run_id="run_1", question=""))
    run(GuardrailInput(stage="reply", text="leaked: b@x.org", run_id="run_1", question=""))
    assert isinstance(run, RestoringHook)
    result = run.restore("[e-mail 1] and [e-mail 2] and [e-mail 3]")
    assert result == "a@x.org and [e-mail 2] and [e-mail 3]"
    assert not isinstance(hook().for_run(), RestoringHook)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_mark_that_pieces_cut_in_two_is_put_back(size: int) -> None:
    text = "To [e-mail 1], see list[0] and [note] and [e-mail 1"
    words = StreamRestorer(lambda text: text.replace("[e-mail 1]", "a@x.org"))
    result = "".join(
        words.receive(text[start : start + size]) for start in range(0, len(text), size)
    )
    assert result + words.rest() == "To a@x.org, see list[0] and [note] and [e-mail 1"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_text_takes_more_than_linear_time(seed: str) -> None:
    def seconds(length: int) -> float:
        text = seed * (length // len(seed))
        began = time.thread_time()
        for shape in DETECTORS:
            shape.pattern.sub("", text)
        return time.thread_time() - began

    assert seconds(LONG) < 0.8
    # Ten times the text at quadratic cost would be a hundred times the time.
    assert seconds(LONG) < 40 * max(seconds(LONG // 10), 0.001)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_made_of_its_own_pieces_keeps_a_pattern_busy(kind: Kind) -> None:
    patterns = [shape.pattern for shape in DETECTORS if shape.kind == kind]
    units = (first + again * 40 + " " for first, again in product(PIECES[kind], repeat=2))
    for unit in units:
        text = unit * (LONG // 10 // len(unit))
        began = time.thread_time()
        for pattern in patterns:
            pattern.sub("", text)
        assert time.thread_time() - began < 0.1, unit  # usual is 0.001


def test_checksums_and_mixtures() -> None:
    assert is_card_number("4111111111111111")
    assert not is_card_number("4111111111111112")
    assert not is_card_number("0" * 16)
    assert is_iban("DE89370400440532013000")
    assert not is_iban("DE00370400440532013000")
    assert is_random("a8f5f167f4")
    assert not is_random("aaaaaaa1")
    assert not is_random("password")
