"""The house: one open server for the tests of a module, as it was in the beginning for each; and
the openai SDK as a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from support.conformance import async_openai_client, openai_client
from support.loopback import Runtime, open_house


@pytest.fixture(scope="module")
def opened_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with open_house(tmp_path_factory.mktemp("runtime")) as runtime:
        yield runtime


@pytest.fixture
def runtime(opened_runtime: Runtime) -> Runtime:
    opened_runtime.begin_anew()
    return opened_runtime


@pytest.fixture
def sdk(runtime: Runtime) -> Iterator[openai.OpenAI]:
    with openai_client(runtime, runtime.token) as client:
        yield client


@pytest.fixture
async def async_sdk(runtime: Runtime) -> AsyncIterator[openai.AsyncOpenAI]:
    async with async_openai_client(runtime) as client:
        yield client
