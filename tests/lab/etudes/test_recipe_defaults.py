from __future__ import annotations

from podium.train.data_schema import EtudesTable
from podium.train.schema import RecipePoolTable
from podium_lab.etudes.plan_examples import ExampleSettings
from podium_lab.etudes.training import UNSURE_SHARE


def test_recipes_and_etudes_have_the_same_defaults() -> None:
    table, settings = EtudesTable(), ExampleSettings()
    for name in (
        *("everyday_share", "nested_phrase_share", "accepted_share", "assigned_share"),
        *("correct_split_share", "correct_access_share"),
    ):
        assert getattr(table, name) == getattr(settings, name)
    assert table.later_round_share == settings.later_round_share
    assert table.unsure_share == UNSURE_SHARE
    assert RecipePoolTable().worker_dropout == settings.drop
