from __future__ import annotations

from dataclasses import replace

import pytest

from podium.conductors.prompt import model_list, short_model_list
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import FREE, Price

POOL = Pool(
    (
        WorkerProfile(
            name="gpt-5",
            description="strongest at code; slow",
            price=Price(input=1.25, output=10),
            capabilities=frozenset({"vision", "long_context", "json", "sampling"}),
        ),
        WorkerProfile(name="claude-sonnet-4", description="writes\n well"),
        WorkerProfile(name="unknown-model"),
    )
)


def test_a_line_of_the_pool_gives_id_name_description_and_what_matters_for_planning() -> None:
    assert model_list(POOL).splitlines() == [
        "0: gpt-5 — strongest at code; slow [vision, long context, medium price]",
        "1: claude-sonnet-4 — writes well",
        "2: unknown-model",
    ]


@pytest.mark.parametrize(
    ("price", "band"),
    [
        (FREE, "free"),
        (Price(input=0.1, output=0.4), "cheap"),
        (Price(input=1, output=5), "medium price"),
        (Price(input=3, output=15), "expensive"),
    ],
)
def test_prices_are_shown_as_bands(price: Price, band: str) -> None:
    assert model_list(Pool((WorkerProfile(name="a", price=price),))) == f"0: a [{band}]"


def test_a_worker_that_conducts_is_described_as_one() -> None:
    nested = WorkerProfile(name="nested", provider=CONDUCTOR_PROVIDER)
    assert model_list(Pool((nested,))) == "0: nested [leads a team of its own]"


def test_the_short_list_gives_ids_and_descriptions_alone() -> None:
    assert short_model_list(replace(POOL, mask_names=True)).splitlines() == [
        "strongest at code; slow = 0",
        "writes well = 1",
        "2",
    ]


def test_the_short_list_has_names_where_they_are_not_masked() -> None:
    assert short_model_list(POOL).splitlines() == [
        "gpt-5 — strongest at code; slow = 0",
        "claude-sonnet-4 — writes well = 1",
        "unknown-model = 2",
    ]
