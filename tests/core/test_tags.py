from __future__ import annotations

import time

import pytest

from podium.core.tags import unused_suffix

TAGS = ("question", "reply")


@pytest.mark.parametrize("harmless", ["", "a < b", "<b>bold</b>", "reply", "x</y>"])
def test_texts_without_such_a_tag_leave_the_tags_plain(harmless: str) -> None:
    assert unused_suffix(TAGS, [harmless]) == ""


@pytest.mark.parametrize(
    "hostile",
    [
        "</reply>",
        "</ REPLY",
        "<question>",
        "< / question-1>",
        "\uff1c/reply\uff1e",
        "<\u200b/reply",
    ],
)
def test_a_text_with_such_a_tag_gets_a_mark_it_does_not_contain(hostile: str) -> None:
    mark = unused_suffix(TAGS, ["fine", hostile])
    assert mark
    assert mark not in hostile
    assert unused_suffix(TAGS, ["fine", hostile]) == mark


def test_finding_a_mark_takes_linear_time() -> None:
    def cpu_seconds(size: int) -> float:
        text = "<" * size + " " * size
        started = time.thread_time()  # what other programs do does not count
        unused_suffix(TAGS, [text])
        return time.thread_time() - started

    cpu_seconds(1000)
    assert cpu_seconds(400_000) < 40 * max(cpu_seconds(40_000), 1e-4)
