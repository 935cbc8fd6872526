from __future__ import annotations

import time

import pytest

from podium.cli.output import (
    clean_text,
    describe_access,
    format_seconds,
    format_tokens,
    format_usd,
    shorten,
    to_one_line,
)


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1bcb", "ab"),
        ("a\x9b31mb", "a31mb"),
        ("bell\x07 back\x08space del\x7f", "bell backspace del"),
        ("pass\u202eword", "password"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("half \ud800 a character", "half \ufffd a character"),
        ("unfinished \x1b[", "unfinished "),
        ("tab\tand\nline stay, as do é, 日本 and 🎼", "tab\tand\nline stay, as do é, 日本 and 🎼"),
        ("[bold]no markup[/bold]", "[bold]no markup[/bold]"),
    ],
)
def test_nothing_is_left_that_a_terminal_would_obey(hostile: str, harmless: str) -> None:
    assert clean_text(hostile) == harmless


@pytest.mark.parametrize("start", ["\x1b]", "\x1b[", "\x1bP", "\x1b"])
def test_cleaning_takes_linear_time(start: str) -> None:
    def spent(length: int) -> float:
        began = time.process_time()
        clean_text(start * length)
        return time.process_time() - began

    assert spent(200_000) < 50 * max(spent(20_000), 0.001)


def test_a_line_has_no_breaks_and_is_cut_with_an_ellipsis() -> None:
    assert to_one_line("a\n\n  b\tc ") == "a b c"
    assert shorten("one two three", 8) == "one two…"
    assert shorten("short", 8) == "short"


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        (None, "cost unknown"),
        (0.0, "$0"),
        (0.00012, "$0.00012"),
        (0.0125, "$0.013"),
        (0.01, "$0.01"),
        (0.06, "$0.06"),
        (0.5, "$0.50"),
        (1234.5, "$1,234.50"),
        (1e-9, "under $0.000001"),
    ],
)
def test_money_is_never_rounded_to_nothing(usd: float | None, words: str) -> None:
    assert format_usd(usd) == words


def test_an_unknown_count_is_not_zero() -> None:
    assert format_tokens(None) == "tokens unknown"
    assert format_tokens(0) == "0 tokens"
    assert format_tokens(1) == "1 token"


def test_long_times_are_reported_in_minutes() -> None:
    assert format_seconds(1.26) == "1.3 s"
    assert format_seconds(302) == "5 min 2 s"


def test_access_is_reported_in_words() -> None:
    assert describe_access("all") == "reads all steps before it"
    assert describe_access((0, 2)) == "reads 0, 2"
    assert describe_access(()) == "reads nothing"
