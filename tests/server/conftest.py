"""The house: one open server for the tests of a module, as it was in the beginning for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.loopback import House, open_house


@pytest.fixture(scope="module")
def opened_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture
def house(opened_house: House) -> House:
    opened_house.begin_anew()
    return opened_house
