"""The pure parts of `benchmarks latency`, over the plans that it measures."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.latency import POOL, first_call_share, plans_by_form
from podium.conductors.plan import parse


def test_every_form_holds_the_same_200_plans_of_three_steps() -> None:
    forms = plans_by_form()
    workflows = {form: [parse(text, POOL).workflow for text in forms[form]] for form in forms}
    assert workflows["trained"] == workflows["json"] == workflows["lists"]
    assert len(set(forms["trained"])) == 200
    assert all(workflow is not None and len(workflow) == 3 for workflow in workflows["json"])


def test_json_steps_begin_early_and_lists_late() -> None:
    share = {form: median(map(first_call_share, texts)) for form, texts in plans_by_form().items()}
    assert share["trained"] <= 0.35 < share["json"] < share["lists"] < 1


@pytest.mark.parametrize("text", ["", "no plan", '{"steps": []}'])
def test_without_a_step_nothing_begins_before_the_end(text: str) -> None:
    assert first_call_share(text) == 1
