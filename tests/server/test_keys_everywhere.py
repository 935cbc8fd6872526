"""With keys, a request without one gets only health and the static pages, which hold no data. The
routes are the application's own, so that a new one cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from podium.server.app import create_app
from podium.server.pages import FILES, PAGES
from podium.server.service import Service
from podium.server.startup import DIALECTS
from support.loopback import Runtime

SOME_ID: Final = "run_0123456789abcdef"


def with_some_id(path: str) -> str:
    return re.sub(r"\{[^}]*\}", SOME_ID, path)


OPEN: Final = {"/health", "/healthz", "/readyz"}
SHOWN: Final = {"/session", *(with_some_id(path) for path in (*PAGES, FILES))}
NOT_KEYS: Final = {
    "nothing": {},
    "an empty one": {"Authorization": "Bearer"},
    "a wrong one": {"Authorization": "Bearer pk_0123456789ab_wrong"},
    "somebody else's": {"x-api-key": "sk-ant-somebody"},
}


def addresses(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Every method and path that is served."""
    for item in iter_route_contexts(routes):
        assert item.path, f"{item.original_route!r} has no path: say how it asks for keys"
        for method in sorted(item.methods or ()):
            yield method, with_some_id(item.path)


async def _never(stack: AsyncExitStack) -> Service:
    raise AssertionError("only the routes are looked at")


EVERY: Final = list(addresses(create_app(_never, DIALECTS).routes))


def closed() -> Iterator[ParameterSet]:
    """Every address that is to ask for a key."""
    for method, path in EVERY:
        if path not in OPEN | SHOWN:
            yield pytest.param(method, path, id=f"{method} {path}")


def test_there_is_something_to_ask_for() -> None:
    assert {path for _, path in EVERY} >= {*DIALECTS, *OPEN, "/v1/models", "/v1/runs", "/metrics"}


@pytest.mark.parametrize(("method", "path"), list(closed()))
@pytest.mark.parametrize("shown", NOT_KEYS)
def test_without_a_key_the_answer_is_401(
    runtime: Runtime, method: str, path: str, shown: str
) -> None:
    response = runtime.http.request(method, path, headers=NOT_KEYS[shown])
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert response.json()["error"]["message"]


@pytest.mark.parametrize("path", sorted(OPEN | SHOWN - {with_some_id(FILES)}))
def test_health_and_the_pages_ask_for_no_key(runtime: Runtime, path: str) -> None:
    assert runtime.http.get(path).status_code == 200


@pytest.mark.parametrize("path", sorted({path for _, path in EVERY}))
def test_with_a_key_nothing_is_401(runtime: Runtime, path: str) -> None:
    headers = {"Authorization": f"Bearer {runtime.token}"}
    assert runtime.http.get(path, headers=headers).status_code != 401
