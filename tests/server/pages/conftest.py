"""Pages in a real browser, over a real server with scripted workers.

Tests here are asynchronous and share one event loop, in which the browser is driven and the
servers run. Whatever a test does, its page may say nothing on the console and ask no other
origin: the fixture `page` looks at that in the end.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from support.site import Site, site_over

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET: Final = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MILLISECONDS: Final = 20_000
"""How long is waited for what a page is to show: a busy machine makes no test fail."""
HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all tests of this directory."""
    for item in items:
        if item.path.is_relative_to(HERE) and inspect.iscoroutinefunction(
            getattr(item, "obj", None)
        ):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@dataclass
class Watched:
    """What a page asked for, and what it said on the console. A test that provokes an error says
    with `allow` which words of the console it expects."""

    pages: list[Page] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    allowed: list[str] = field(default_factory=list)

    def allow(self, *words: str) -> None:
        """Expect messages that have these words in them."""
        self.allowed += words

    def watch(self, page: Page) -> None:
        """Keep what the page asks and says from now on."""
        self.pages.append(page)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}"))

    async def leave(self) -> None:
        """Close the pages, before the server ends that they go on asking."""
        for page in self.pages:
            await page.close()

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.said.append(f"{kind}: {text}")

    def check(self) -> None:
        """Nothing was said that was not expected, and nobody else was asked."""
        unexpected = [said for said in self.said if not any(word in said for word in self.allowed)]
        assert not unexpected, f"the console said: {unexpected}"
        own = ("data:", "blob:", "about:", *self.origins)
        strangers = [url for url in self.asked if not url.startswith(own)]
        assert not strangers, f"asked of other origins: {strangers}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium, once for all tests; each gets a profile of its own."""
    if CHROMIUM is None:
        pytest.skip("NO BROWSER: install chromium (apt-get install chromium) to try the pages")
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A fresh profile."""
    made = await browser.new_context(
        viewport={"width": 1280, "height": 900}, locale="en-US", timezone_id="Europe/Vienna"
    )
    made.set_default_timeout(PATIENCE_MILLISECONDS)
    yield made
    await made.close()


@pytest.fixture
def watched() -> Watched:
    """What the page asks for and says; checked when the test is over."""
    return Watched()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, watched: Watched) -> AsyncIterator[Page]:
    """An empty page, 1280 pixels wide, light."""
    made = await context.new_page()
    watched.watch(made)
    yield made
    await made.close()
    watched.check()


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, watched: Watched) -> AsyncIterator[Site]:
    """A server with the scripted pool of three that asks for no keys."""
    async with site_over(tmp_path) as made:
        watched.origins.add(made.address + "/")
        yield made
        await watched.leave()


@pytest_asyncio.fixture(loop_scope="session")
async def site_with_keys(tmp_path: Path, watched: Watched) -> AsyncIterator[Site]:
    """The same with keys on; `site_with_keys.token` is a key that may do everything."""
    async with site_over(tmp_path, keys=True) as made:
        watched.origins.add(made.address + "/")
        yield made
        await watched.leave()
