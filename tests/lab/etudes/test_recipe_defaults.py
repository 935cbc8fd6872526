from __future__ import annotations

from podium.train.schema import EtudesTable, PoolTable
from podium_lab.etudes.etude import NESTED_SHARE
from podium_lab.etudes.plan_examples import ASSIGNED, DROP, EVERYDAY, TRUE_ACCESS, TRUE_CLAUSES
from podium_lab.etudes.second_rounds import ACCEPTED
from podium_lab.etudes.specialist_examples import UNSURE_SHARE


def test_recipes_and_etudes_have_the_same_defaults() -> None:
    table = EtudesTable()
    assert table.everyday_share == EVERYDAY
    assert table.nested_share == NESTED_SHARE
    assert table.accepted_share == ACCEPTED
    assert table.assigned_share == ASSIGNED
    assert table.true_clauses == TRUE_CLAUSES
    assert table.true_access == TRUE_ACCESS
    assert table.unsure_share == UNSURE_SHARE
    assert PoolTable().drop == DROP
