"""The house: one open server for the tests of a module, as it was in the beginning for each; and
the openai SDK as a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from support.conformance import async_openai_client, openai_client
from support.loopback import House, open_house


@pytest.fixture(scope="module")
def opened_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture
def house(opened_house: House) -> House:
    opened_house.begin_anew()
    return opened_house


@pytest.fixture
def sdk(house: House) -> Iterator[openai.OpenAI]:
    with openai_client(house, house.token) as client:
        yield client


@pytest.fixture
async def async_sdk(house: House) -> AsyncIterator[openai.AsyncOpenAI]:
    async with async_openai_client(house) as client:
        yield client
