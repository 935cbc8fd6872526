from __future__ import annotations

import asyncio

import pytest

from podium.tasks import mathematics
from podium.tasks.mathematics import is_equal


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("(3, \\pi/2)", "\\left( 3, \\frac{\\pi}{2} \\right)"),
        ("x = 5", "5"),
        ("90", "90^\\circ"),
        ("Evelyn", "\\text{Evelyn}"),
        ("3, 2, 1", "1,2,3"),
        ("(x+1)^2", "x^2+2x+1"),
        ("\\sqrt{90}", "3\\sqrt{10}"),
        ("18.90", "\\$18.90"),
        ("18.90 dollars", "\\$18.90"),
        ("52_{8}", "52_8"),
        ("52", "52_8"),
        ("\\frac{12}{5525}", "\\frac{12}{5,\\!525}"),
        ("45^\\circ, 135°", "45^\\circ, 135^\\circ"),
        ("10000", "10{,}000"),
        ("5 m", "5"),
        ("The answer is 9.", "9"),
        ("So it is \\boxed{\\frac{1}{2}}, as expected.", "1/2"),
    ],
)
async def test_equal_meanings_are_equal(given: str, wanted: str) -> None:
    assert await is_equal(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("8", "9"),
        ("(3,77)", "77"),
        ("1.414", "\\sqrt{2}"),
        ("odd", "even"),
        ("}{$$\\frac{", "5"),
        ("52_9", "52_8"),
        ("53", "52_8"),
        ("4t", "4"),
        ("4", "4t"),
        ("1 1/2", "11/2"),
        ("2 3", "23"),
    ],
)
async def test_different_meanings_are_not_equal(given: str, wanted: str) -> None:
    assert not await is_equal(given, wanted)


async def test_an_expression_that_takes_for_ever_is_not_equal_and_harms_no_other() -> None:
    endless, plain = await asyncio.gather(
        is_equal("9^{9^{9^{9^9}}}", "9", seconds=0.5), is_equal("2/4", "1/2")
    )
    assert not endless
    assert plain
    assert await is_equal("2/4", "1/2")


async def test_a_crashed_child_process_loses_no_answer() -> None:
    assert await is_equal("2/4", "1/2")
    child = mathematics._idle.get_nowait()
    child.process.kill()
    child.process.wait()
    mathematics._idle.put(child)
    assert await is_equal("3/6", "1/2")


def test_children_serve_one_event_loop_after_another() -> None:
    assert asyncio.run(is_equal("2/4", "1/2"))
    assert asyncio.run(is_equal("3/6", "1/2"))
