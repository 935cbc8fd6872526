"""What the pages share: elements, figures, events, errors. Called in the browser as pages do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

    from server.pages.conftest import Watched


FIGURES: Final = {
    "usd(0)": "$0.00",
    "usd(12.5)": "$12.50",
    "usd(0.0042)": "$0.0042",
    "usd(0.00012345)": "$0.00012",
    "usd(null)": "–",
    "duration(0.34)": "340 ms",
    "duration(2.44)": "2.4 s",
    "duration(59.99)": "1 min 0 s",
    "duration(192)": "3 min 12 s",
    "duration(7500)": "2 h 5 min",
    "duration(undefined)": "–",
    "count(1204)": "1,204",
    "count(1234567)": "1.23M",
    "count(NaN)": "–",
    "percent(0.125)": "12.5%",
    "percent(null)": "–",
    "when('2025-01-02T11:04:00Z')": "Jan 2, 2025, 12:04 PM",
    "when('nonsense')": "–",
    "when(null)": "–",
}


async def test_figures_are_as_people_read_them_and_the_unknown_is_a_dash(on_a_page: Page) -> None:
    shown: dict[str, Any] = {}
    for call in FIGURES:
        shown[call] = await on_a_page.evaluate(
            f"""async () => {{
                const {{ usd, duration, count, percent, when }} =
                    await import('/static/lib/format.js');
                const made = {call};
                return [made.textContent, made.title];
            }}"""
        )
    assert {call: text for call, (text, _) in shown.items()} == FIGURES
    assert shown["usd(null)"] == ["–", "unknown"]
    assert shown["count(1234567)"][1] == "1,234,567"


async def test_a_text_is_shortened_by_characters_as_people_count_them(on_a_page: Page) -> None:
    made = await on_a_page.evaluate(
        """async () => {
            const { shorten } = await import('/static/lib/format.js');
            return [shorten(' a\\n b ', 9), shorten('abcdef', 4), shorten('🎻🎻🎻', 2)];
        }"""
    )
    assert made == ["a b", "abc…", "🎻…"]


async def test_elements_take_no_markup_and_no_script(on_a_page: Page) -> None:
    made = await on_a_page.evaluate(
        """async () => {
            const { h, s } = await import('/static/lib/dom.js');
            const refused = (make) => { try { make(); return null; } catch (e) { return e.name; } };
            return {
                text: h('p', {}, '<b>', 0, null, false, ['x', [h('i')]]).outerHTML,
                off: h('p', { hidden: false, title: null, open: true }).outerHTML,
                link: h('a', { href: ' java\\nscript:alert(1)' }).getAttribute('href'),
                drawn: s('a', { 'xlink:href': 'javascript:1' }).getAttribute('xlink:href'),
                refused: [
                    () => h('script'), () => h('IFRAME'), () => s('style'),
                    () => h('p', { onclick: 'x' }), () => h('p', { style: 'x' }),
                    () => h('p', { OnClick: 'x' }), () => h('p', { srcdoc: 'x' }),
                ].map(refused),
            };
        }"""
    )
    assert made == {
        "text": "<p>&lt;b&gt;0x<i></i></p>",
        "off": '<p open=""></p>',
        "link": "#",
        "drawn": "#",
        "refused": ["TypeError"] * 7,
    }


async def test_events_are_read_however_they_are_cut(on_a_page: Page) -> None:
    sent = (
        ": alive\n\nevent: a\ndata: one\ndata:two\n\nid: 7\r\ndata: ü\r\n\r\ndata\n\nevent: b\n\n"
    )
    read = await on_a_page.evaluate(
        """async (sent) => {
            const { events } = await import('/static/lib/events.js');
            const bytes = new TextEncoder().encode(sent);
            const all = [];
            for (const size of [1, 2, 3, 1000]) {
                const stream = new ReadableStream({
                    start(controller) {
                        for (let at = 0; at < bytes.length; at += size) {
                            controller.enqueue(bytes.slice(at, at + size));
                        }
                        controller.close();
                    },
                });
                const found = [];
                for await (const event of events(stream)) found.push(event);
                all.push(found);
            }
            return all;
        }""",
        sent,
    )
    expected = [
        {"event": "a", "data": "one\ntwo", "id": ""},
        {"event": "message", "data": "ü", "id": "7"},
        {"event": "message", "data": "", "id": "7"},
    ]
    assert read == [expected] * 4


async def test_a_refusal_says_what_happened_and_what_to_do(
    on_a_page: Page, watched: Watched
) -> None:
    watched.allow("Failed to load resource")

    async def answer(route: Route) -> None:
        status = int(route.request.url.rpartition("/")[2])
        headers = {"Retry-After": "7"} if status == 429 else {}
        body = "gateway" if status == 502 else '{"error": {"message": "no more today"}}'
        await route.fulfill(status=status, body=body, headers=headers)

    await on_a_page.route("**/refuse/*", answer)
    await on_a_page.route("**/gone", lambda route: route.abort())
    results = await on_a_page.evaluate(
        """async () => {
            const { get, ApiError } = await import('/static/lib/api.js');
            const all = [];
            for (const path of ['/refuse/402', '/refuse/429', '/refuse/502', '/gone']) {
                try { await get(path); } catch (error) {
                    all.push([error instanceof ApiError, error.status, error.message, error.hint]);
                }
            }
            return all;
        }"""
    )
    assert [item[:3] for item in results] == [
        [True, 402, "no more today"],
        [True, 429, "no more today"],
        [True, 502, "The server answered 502."],
        [True, 0, "The server cannot be reached."],
    ]
    assert "7 s" in results[1][3]
    assert all(item[3] for item in results)


async def test_a_stopped_request_says_only_that(on_a_page: Page, site: Site) -> None:
    run_id = await site.ask("Why?")
    seen = await on_a_page.evaluate(
        """async (path) => {
            const { get, stream } = await import('/static/lib/api.js');
            const names = [];
            for await (const event of stream(path)) names.push(event.event);
            const leaving = new AbortController();
            leaving.abort();
            const stopped = await get('/v1/runs', { signal: leaving.signal }).catch((e) => e.name);
            return { names, stopped };
        }""",
        f"/v1/runs/{run_id}/events",
    )
    assert seen["names"][0] == "run_started"
    assert seen["names"][-1] == "run_done"
    assert seen["stopped"] == "AbortError"
