"""The page in a real browser, where there is one: replies are inert, and nothing leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evals.demonstration import HOSTILE
from podium.evals.log import read_eval_log
from podium.evals.page import make_view, report_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: chromium is not on the PATH, so the page is not tried in one",
)


@pytest.fixture(scope="module")
def pages(evaluation: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    page = tmp_path_factory.mktemp("pages") / "report.html"
    page.write_text(report_page(make_view(read_eval_log(evaluation))), "utf-8")
    return {"report": page}


@pytest.fixture(scope="module")
def browser(pages: dict[str, Path]) -> Iterator[Browser]:
    """Begun after the pages are written: while it is there, no other loop may run."""
    assert pages
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield launched
        launched.close()


def opened(browser: Browser, path: Path, **context: Any) -> tuple[Page, list[str], list[str]]:
    """The page with everything unfolded, what it asked for, and what the console said."""
    page = browser.new_context(**context).new_page()
    asked, said = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    return page, asked, said


@pytest.mark.parametrize("name", ["report"])
def test_hostile_replies_run_no_code_and_send_no_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    page, asked, said = opened(browser, pages[name])
    assert page.title().startswith("sevens")
    assert asked == [pages[name].as_uri()]
    assert said == []
    assert page.evaluate("document.querySelectorAll('script, img, iframe, link').length") == 0
    assert page.get_by_text('<script>document.title="taken"</script>').count() > 0
    assert page.evaluate("getComputedStyle(document.body).display") == "block"


def test_the_same_reply_runs_code_on_an_unprotected_page(browser: Browser, tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    naive = tmp_path / "naive.html"
    words = HOSTILE.encode("utf-8", "replace").decode("utf-8")
    naive.write_text(f"<!doctype html><title>sevens</title><pre>{words}</pre>", "utf-8")
    page, asked, _ = opened(browser, naive)
    assert page.title() != "sevens"
    assert len(asked) > 1


@pytest.mark.parametrize("name", ["report"])
@pytest.mark.parametrize("width", [380, 1280])
def test_the_page_is_no_wider_than_its_window(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    page, _, _ = opened(browser, pages[name], viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_follows_its_readers_light_or_dark(browser: Browser, pages: dict[str, Path]) -> None:
    seen = []
    for scheme in ("light", "dark"):
        page, _, _ = opened(browser, pages["report"], color_scheme=scheme)
        paints = "[document.body, document.querySelector('.f-faint')].map(e => getComputedStyle(e))"
        seen.append(page.evaluate(f"{paints}.map(s => s.backgroundColor + s.fill)"))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
