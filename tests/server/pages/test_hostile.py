"""Untrusted text is displayed and never executed: questions, replies, errors, names."""

from __future__ import annotations

import json
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import RequestRefused
from podium.core.workflow import Step, Workflow
from podium.server.pages import STATIC
from podium.workers import ScriptedWorker
from support.browsing import shown
from support.hostile import ACT, HOSTILE
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from server.pages.conftest import Serve, Watched

FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc\s*=|"
    r"setHTMLUnsafe|createContextualFragment|DOMParser|setAttribute\(\s*['\"]style|"
    r"\sstyle\s*=\s*[\"']|setTimeout\(\s*['\"]|https?://(?!www\.w3\.org/)"
)
OWN: Final = [path for path in sorted(STATIC.rglob("*")) if path.suffix in (".js", ".html")]

UNFOLD: Final = "document.querySelectorAll('details').forEach(each => each.open = true)"
SETTLED: Final = "new Promise(done => setTimeout(done, 60))"
ACTED: Final = """() => ({
    taken: window.taken ?? null,
    elements: [...document.querySelectorAll(
        'main script, main iframe, main object, main embed, main img, main link, main style, '
        + 'main base, main meta, main marquee, main video, main audio, main form[action*=evil]'
    )].map(element => element.outerHTML),
    handlers: [...document.querySelectorAll('main *')].flatMap(
        element => element.getAttributeNames().filter(name => name.startsWith('on'))
    ),
    links: [...document.querySelectorAll('main [href], main [src]')].map(
        element => (element.getAttribute('href') ?? element.getAttribute('src')).trim()
    ).filter(address => /^(?!https?:|mailto:)[a-z]+:/i.test(address)),
})"""
NOTHING: Final[dict[str, object]] = {"taken": None, "elements": [], "handlers": [], "links": []}


def test_there_are_forty_of_them() -> None:
    assert len(set(HOSTILE)) == 40


@pytest.mark.parametrize(
    "path",
    [path for path in OWN if "vendor" not in path.parts],
    ids=lambda path: path.relative_to(STATIC).as_posix(),
)
def test_no_page_makes_markup_of_text(path: Path) -> None:
    source = path.read_text("utf-8")
    found = [
        line
        for line in source.splitlines()
        if FORBIDDEN.search(line) and not line.strip().startswith(("//", "*", "/*", "/**"))
    ]
    allowed = {"const SAFE_SCHEMES", "'https://relative.invalid/'"}
    assert not [line for line in found if not any(word in line for word in allowed)]


@pytest.mark.usefixtures("fresh_profile")
async def test_they_would_act_on_a_page_that_let_them(context: BrowserContext) -> None:
    """Else the tests below would show nothing. Each has a frame of its own."""
    page = await context.new_page()
    await page.route("**", lambda route: route.abort())
    await page.route("http://naive.test/", lambda route: route.fulfill(body="<title>naive</title>"))
    await page.goto("http://naive.test/")
    acted = await page.evaluate(
        """async (texts) => {
            const frames = texts.map((text) => {
                const frame = document.createElement('iframe');
                frame.srcdoc = `<main>${text}</main>`;
                document.body.append(frame);
                return frame;
            });
            const acted = () => frames.filter((frame) => frame.contentWindow?.taken === 1);
            for (let n = 0; n < 50 && acted().length < 12; n += 1) {
                await new Promise((done) => setTimeout(done, 50));
            }
            return acted().length;
        }""",
        [text for text in HOSTILE if text.startswith("<") and ACT in text],
    )
    assert acted >= 12


async def test_as_markdown_and_in_attributes_none_executes(page: Page, site: Site) -> None:
    await page.goto(site.url("/docs"))
    await page.get_by_role("heading", level=1).first.wait_for()
    words = await page.evaluate(
        """async (texts) => {
            const { markdown } = await import('/static/lib/markdown.js');
            const { h } = await import('/static/lib/dom.js');
            const { failure, empty } = await import('/static/lib/states.js');
            const main = document.querySelector('main');
            for (const text of texts) {
                main.append(
                    h('article', { title: text, class: text, href: text }, markdown(text)),
                    h('a', { href: text, 'xlink:href': text }, text),
                    failure(new Error(text)), empty(text, text),
                );
                for (const link of main.querySelectorAll('article:last-of-type a')) {
                    link.removeAttribute('target');
                    if (!/^https?:/.test(link.href)) link.click();
                }
            }
            return main.textContent;
        }""",
        list(HOSTILE),
    )
    await page.evaluate(SETTLED)
    assert await page.evaluate(ACTED) == NOTHING
    assert "<script>window.taken=1</script>" in words
    assert "␛[31m" in words
    assert "\x1b" not in words
    assert "[U+202E]" in words


EVERYTHING: Final = "\n\n".join(HOSTILE)
WORKFLOW: Final = Workflow(
    (
        Step(HOSTILE[2], EVERYTHING),
        Step(HOSTILE[35], HOSTILE[0]),
        Step(HOSTILE[2], HOSTILE[26], access=(0, 1)),
    )
)


def hostile_site(serve: Serve) -> AbstractAsyncContextManager[Site]:
    """A server of which everything that can be is hostile: names of workers, what they are said to
    be good at, their replies, their errors."""
    workers = [
        ScriptedWorker(HOSTILE[2], EVERYTHING, description=HOSTILE[3]),
        ScriptedWorker(HOSTILE[35], RequestRefused(EVERYTHING), description=HOSTILE[26]),
    ]
    return serve(workers, conductor=FixedConductor(WORKFLOW))


async def read_harmlessly(page: Page, address: str) -> str:
    """All that a page shows, once it is clear that nothing of it has done anything."""
    await page.goto(address)
    await shown(page)
    await page.evaluate(UNFOLD)
    await shown(page)
    await page.evaluate(SETTLED)
    assert await page.evaluate(ACTED) == NOTHING, address
    return await page.locator("main").inner_text()


async def test_on_the_pages_of_what_was_done_none_executes(page: Page, serve: Serve) -> None:
    async with hostile_site(serve) as site:
        run_id = await site.ask(EVERYTHING)
        words = ""
        for path in ("/runs", f"/runs/{run_id}", "/pool", "/spend"):
            words += await read_harmlessly(page, site.url(path))
        assert words.count(HOSTILE[0]) > 3
        assert words.count(HOSTILE[2]) > 3


def write_hostile_learning(directory: Path) -> None:
    """A training and an evaluation of which every word that is shown is hostile."""
    training, evaluation = directory / "etudes", directory / "mine"
    for made in (training, evaluation):
        made.mkdir(parents=True)
    metrics = {"step": 1, "rollouts": 8, "reward": 0.5, f"steps/{HOSTILE[2]}": 0.5, HOSTILE[3]: 1.0}
    (training / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    samples = (
        dict.fromkeys(("question", "text", "kind", "problem"), EVERYTHING),
        dict.fromkeys(("prompt", "wanted", "said", "adapter"), EVERYTHING),
    )
    lines = [json.dumps({"step": 1, **sample}) + "\n" for sample in samples]
    (training / "samples.jsonl").write_text("".join(lines))
    (evaluation / "evaluation.json").write_text(json.dumps({"suite": EVERYTHING, "seed": 7}))
    row = {
        "strategy": EVERYTHING, "note": EVERYTHING, "accuracy": 0.3, "interval": [0.18, 0.45],
        "faults": 1, "cost_usd": None, "calls": 2.85, "seconds": {"p50": None, "p95": None},
    }  # fmt: skip
    summary = {"suite": EVERYTHING, "n": 40, "rows": [row]}
    (evaluation / "summary.json").write_text(json.dumps(summary))


async def test_on_the_pages_of_what_was_learned_none_executes(
    page: Page, tmp_path: Path, serve: Serve
) -> None:
    directory = tmp_path / HOSTILE[2]
    write_hostile_learning(directory)
    async with serve(experiment_dirs=(str(directory),)) as site:
        words = {}
        await page.goto(site.url("/experiments"))
        links = page.get_by_role("table").get_by_role("link")
        await links.first.wait_for()
        addresses = [await link.get_attribute("href") for link in await links.all()]
        for path in ("/experiments", *sorted(filter(None, addresses))):
            words[path] = await read_harmlessly(page, site.url(path))
        listed, training, evaluation = words.values()
        assert HOSTILE[2] in listed
        assert training.count(HOSTILE[0]) >= 6, "of both samples, all that there is"
        assert evaluation.count(HOSTILE[0]) >= 3, "the suite, the strategy and its note"


async def test_while_an_answer_is_streamed_none_executes(page: Page, serve: Serve) -> None:
    async with hostile_site(serve) as site:
        await page.goto(site.url("/"))
        await page.get_by_label("Message").fill(EVERYTHING)
        await page.get_by_role("button", name="Send", exact=True).click()
        await page.get_by_text(HOSTILE[2], exact=False).first.wait_for()
        await page.locator("main [data-status='answered']").wait_for()
        await page.evaluate(UNFOLD)
        await shown(page)
        await page.evaluate(SETTLED)
        assert await page.evaluate(ACTED) == NOTHING
        assert HOSTILE[0] in await page.locator("main").inner_text()


async def test_the_policy_stops_what_would_get_through_all_the_same(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("Content Security Policy", "404")
    await page.goto(site.url("/docs"))
    await page.get_by_role("heading", level=1).first.wait_for()
    reached = await page.evaluate(
        """async () => {
            const script = document.createElement('script');
            script.textContent = 'window.taken = 1';
            const picture = document.createElement('div');
            picture.innerHTML =
                '<img src="/favicon" onerror="taken = 2"><a href="javascript:taken = 3">x</a>';
            document.body.append(script, picture);
            picture.querySelector('a').click();
            return fetch('https://evil.example/').then(() => true, () => false);
        }"""
    )
    await page.evaluate(SETTLED)
    assert not reached
    assert await page.evaluate("window.taken ?? null") is None
    assert len([said for said in watched.said if "Content Security Policy" in said]) >= 3
