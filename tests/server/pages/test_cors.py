"""A page of another origin chats and streams with the server, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from podium.workers import ScriptedWorker
from support.site import listening

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Serve, Watched
    from support.site import Site

CHAT: Final = """
async ([address, path, token, body]) => {
  const headers = { 'Content-Type': 'application/json', 'X-Stainless-Lang': 'js' };
  if (token) headers.Authorization = `Bearer ${token}`;
  try {
    const response = await fetch(address + path, {
      method: 'POST', headers, body: JSON.stringify(body),
    });
    const pieces = [];
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      pieces.push(new TextDecoder().decode(part.value));
    }
    return {
      status: response.status,
      text: pieces.join(''),
      id: response.headers.get('x-request-id'),
    };
  } catch (error) {
    return { status: 0, text: String(error), id: null };
  }
}
"""


def worker() -> ScriptedWorker:
    return ScriptedWorker("solo", "forty two")


async def blank(request: Request) -> HTMLResponse:
    return HTMLResponse("<title>another origin</title>")


@asynccontextmanager
async def page_elsewhere(page: Page, watched: Watched) -> AsyncIterator[str]:
    """Show a page of another origin; it is left before its server ends."""
    async with listening(Starlette(routes=[Route("/", blank)])) as origin:
        watched.origins.add(origin)
        await page.goto(origin)
        yield origin
        await page.goto("about:blank")


async def chat(page: Page, site: Site, token: str = "", **more: Any) -> Any:
    body = {"model": "solo", "messages": [{"role": "user", "content": "Why?"}]} | more
    return await page.evaluate(CHAT, [site.address, "/v1/chat/completions", token, body])


@pytest.mark.parametrize("keys", [False, True])
async def test_a_listed_page_chats_and_streams(
    page: Page, serve: Serve, watched: Watched, keys: bool
) -> None:
    async with (
        page_elsewhere(page, watched) as origin,
        serve([worker()], keys=keys, cors=(origin,)) as site,
    ):
        results = await chat(page, site, site.token)
        assert (results["status"], "forty two" in results["text"]) == (200, True)
        assert results["id"].startswith("req_")
        streamed = await chat(page, site, site.token, stream=True)
        assert streamed["text"].endswith("data: [DONE]\n\n")
        watched.allow("404", "401")
        refused = await chat(page, site, site.token, model="nothing")
        assert (refused["status"], "model not found" in refused["text"]) == (404, True)
        unknown = await chat(page, site, "wrong" if keys else "")
        assert unknown["status"] == (401 if keys else 200)


async def test_every_page_may_come_with_a_key_where_the_setting_says_so(
    page: Page, serve: Serve, watched: Watched
) -> None:
    async with (
        page_elsewhere(page, watched),
        serve([worker()], keys=True, cors=("*",)) as site,
    ):
        results = await chat(page, site, site.token)
        assert (results["status"], "forty two" in results["text"]) == (200, True)
        watched.allow("401")
        assert (await chat(page, site))["status"] == 401


@pytest.mark.parametrize("cors", [(), ("http://localhost:3000",)])
async def test_other_pages_get_nothing(
    page: Page, serve: Serve, watched: Watched, cors: tuple[str, ...]
) -> None:
    watched.allow("blocked by CORS policy", "Failed to load resource")
    async with page_elsewhere(page, watched), serve([worker()], cors=cors) as site:
        results = await chat(page, site)
        assert (results["status"], results["id"]) == (0, None)
