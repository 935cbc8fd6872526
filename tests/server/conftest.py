"""The house: one open server for the tests of a module, as it was in the beginning for each; and
the openai SDK as a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from support.conformance import async_openai_client, openai_client
from support.loopback import Runtime, open_house


@pytest.fixture(scope="module")
def opened_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with open_house(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture
def house(opened_house: Runtime) -> Runtime:
    opened_house.begin_anew()
    return opened_house


@pytest.fixture
def sdk(house: Runtime) -> Iterator[openai.OpenAI]:
    with openai_client(house, house.token) as client:
        yield client


@pytest.fixture
async def async_sdk(house: Runtime) -> AsyncIterator[openai.AsyncOpenAI]:
    async with async_openai_client(house) as client:
        yield client
