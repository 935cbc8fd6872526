"""The newcomer's first question, with the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium
from podium.cli.session import OFFLINE
from support.local_weights import smollm2

pytestmark = pytest.mark.weights

__all__ = ["smollm2"]


CHAIN = (
    "First tell me how to say tree in Esperanto, then tell me what the first letter of the answer "
    "is, and finally tell me the number of the answer in the alphabet."
)


@pytest.fixture
def at_home(home: Path, smollm2: Path) -> None:
    """The weights where the command line looks for them."""
    (home / "models").mkdir(parents=True)
    (home / "models" / smollm2.name).symlink_to(smollm2)


@pytest.mark.usefixtures("at_home")
def test_with_no_key_and_no_file_a_trained_conductor_hands_on_what_is_one_question(
    podium: Podium,
) -> None:
    ended = podium("ask", "--offline", "What is the capital of Japan?")
    plan, _, answer = ended.out.partition("\n\n")
    assert ended.code == 0
    assert plan.startswith("plan by model(embedded/etude-conductor): 1 step, one-shot\n")
    assert "  0 generalist: What is the capital of Japan? (reads nothing)" in plan
    assert "Tokyo" in answer
    assert ended.complaint == OFFLINE


@pytest.mark.usefixtures("at_home")
def test_what_takes_several_skills_becomes_a_step_for_each_and_specialists_do_them(
    podium: Podium,
) -> None:
    run = podium("ask", "--offline", "--json", CHAIN).json
    assert run["answer"] == "1"
    assert [(step["worker"], step["access"], step["reply"]) for step in run["steps"]] == [
        ("translation", [], "arbo"),
        ("words", [0], "A"),
        ("codes", [1], "1"),
    ]
