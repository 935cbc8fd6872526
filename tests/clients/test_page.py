"""docs/reference/clients.md says what the cases say."""

from __future__ import annotations

from clients import page
from clients.cases import CLIENTS, cases


def test_the_page_is_the_one_that_the_cases_make() -> None:
    assert page.PATH.read_text("utf-8") == page.text(), "run ./scripts/clients --docs"


def test_at_least_eighteen_clients_have_at_least_a_hundred_and_twenty_cases() -> None:
    assert len(CLIENTS) >= 18
    assert len([*cases()]) >= 120


def test_no_two_cases_have_the_same_name() -> None:
    ids = [case.id for case in cases()]
    assert len({*ids}) == len(ids)
