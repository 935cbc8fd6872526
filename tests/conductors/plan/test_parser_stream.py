"""Steps of a plan that is still being written."""

from __future__ import annotations

import random

import pytest

from podium.conductors.plan import PlanLayout, PlanStream, parse, write
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import Access, Step, Workflow

POOL = Pool(tuple(WorkerProfile(name=name) for name in ("first", "second", "third")))
TEXTS = ('Say "so", [or] {not}', "Plan, then \\ do: it", "Prüfe es\nzweimal", "]}, {", "a")
TAILS = ("", "}", "\nI hope this helps", ', {"subtask": "x"', '\nmodel_id = [9]\n"steps": [')


def random_workflow(chance: random.Random) -> Workflow:
    def access(index: int) -> Access:
        if index and chance.random() < 0.3:
            return "all"
        return tuple(i for i in range(index) if chance.random() < 0.5)

    return Workflow(
        tuple(
            Step(chance.choice(POOL.names), chance.choice(TEXTS), access(index))
            for index in range(chance.randint(1, 6))
        )
    )


def pieces_of(text: str, chance: random.Random) -> list[str]:
    cuts = sorted(chance.sample(range(1, len(text)), chance.randint(0, min(30, len(text) - 1))))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("layout", ["lists", "step-by-step"])
def test_streamed_steps_equal_those_of_the_parsed_plan(layout: PlanLayout) -> None:
    chance = random.Random(7)
    early_steps = failed = 0
    for _ in range(3000):
        workflow = random_workflow(chance)
        text = chance.choice(("", "Think [first].\n", "<think>steps = [1]</think>\n"))
        text += write(workflow, POOL, layout=layout)
        if chance.random() < 0.3:
            text = text[: chance.randint(1, len(text))] + chance.choice(TAILS)
        if len(text) < 2:
            continue
        stream = PlanStream(POOL)
        early = [step for piece in pieces_of(text, chance) for step in stream.feed(piece)]
        try:
            parsed = parse(text, POOL).workflow
        except MalformedPlan:
            failed += 1
            continue
        assert parsed is not None
        assert tuple(early) == parsed.steps[: len(early)]
        assert len(early) < len(parsed)
        if parsed == workflow:
            assert len(early) == len(parsed) - 1, "all but the last are known before the end"
        early_steps += len(early)
    assert early_steps > 1000
    assert failed > 100


def test_a_json_step_is_known_when_another_one_follows() -> None:
    stream = PlanStream(POOL)
    assert stream.feed('{"steps": [{"subtask": "a", "worker": 1, "access": []}') == []
    assert stream.feed(",") == [Step("second", "a")]
    assert stream.feed(' {"subtask": "b", "worker": 0, "access": [0]}]}') == []


def test_the_lists_give_their_steps_with_the_last_of_them() -> None:
    stream = PlanStream(POOL)
    assert stream.feed('model_id = [1, 0]\nsubtasks = ["a", "b"]\naccess_list = [') == []
    assert stream.feed("[],") == [Step("second", "a")]
    assert stream.feed(" [0]]") == []


def test_a_second_plan_gives_no_steps() -> None:
    stream = PlanStream(POOL)
    text = write(Workflow((Step("first", "a"), Step("second", "b"))), POOL, layout="step-by-step")
    assert stream.feed(text) == [Step("first", "a")]
    assert stream.feed("\n" + text) == []


def test_thinking_gives_no_steps() -> None:
    text = write(Workflow((Step("first", "a"), Step("second", "b"))), POOL, layout="step-by-step")
    stream = PlanStream(POOL)
    assert stream.feed(f"<think>{text}") == []
    assert stream.feed(f"</think>{text}") == [Step("first", "a")]
