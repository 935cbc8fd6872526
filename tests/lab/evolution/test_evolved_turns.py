from __future__ import annotations

import pytest

from podium.conductors.evolved_turns import Turn, is_accepted
from podium.core.conductor import PlanningContext
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import assistant, system, user
from podium.core.run import StepRecord, StepStatus, TurnRole

pytest.importorskip("numpy")

from podium_lab.evolution.coordinator import suggested_role, transcript

POOL = Pool((WorkerProfile(name="ann"),))


def turn(role: TurnRole, reply: str, status: StepStatus = "done") -> Turn:
    return Turn(role, StepRecord(0, 0, "ann", "do", (), status, reply, None, 0.0, 1.0))


@pytest.mark.parametrize(
    ("reply", "accepted"),
    [
        ("ACCEPT", True),
        ("\n**ACCEPT**\nIt is right.", True),
        ("Let me see: 6 times 7 is 42.\n\nACCEPT.", True),
        ("REVISE\nThen I would ACCEPT", False),
        ("REVISE: it is 43\nACCEPT", False),
        ("I ACCEPT that it is hard", False),
        ("ACCEPTABLE, nearly", False),
        ("accept", False),
        ("It is right.", False),
        ("", False),
    ],
)
def test_a_verifier_accepts_in_its_first_line_or_else_in_its_last(
    reply: str, accepted: bool
) -> None:
    assert is_accepted([turn("verifier", reply)]) == accepted


def test_only_a_verifier_in_the_last_turn_accepts() -> None:
    assert not is_accepted([])
    assert not is_accepted([turn("worker", "ACCEPT")])
    assert not is_accepted([turn("verifier", "ACCEPT"), turn("worker", "42")])
    assert not is_accepted([turn("verifier", "ACCEPT", "cancelled")])


@pytest.mark.parametrize(
    ("reply", "role"),
    [
        ("Multiply.\nNEXT: WORKER", "worker"),
        ("Multiply.\n- **next role: verifier**\n", "verifier"),
        ("NEXT: VERIFIER\nand then see", None),
        ("The next worker should know", None),
        ("NEXT: CONDUCTOR", None),
        ("", None),
    ],
)
def test_a_thinker_suggests_a_role_in_its_last_line(reply: str, role: str | None) -> None:
    assert suggested_role([turn("thinker", reply)]) == role
    assert suggested_role([turn("worker", reply)]) is None


def test_the_transcript_begins_with_the_conversation_and_ends_with_an_objection() -> None:
    context = PlanningContext(
        question="And now?",
        pool=POOL,
        history=(system("Be brief."), user("Hi"), assistant("Hello")),
        replan_reason="it names a person",
    )
    assert transcript(context) == (
        "system: Be brief.\nuser: Hi\nassistant: Hello\nuser: And now?\n"
        "guardrail: it names a person\n"
    )
