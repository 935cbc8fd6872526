"""Markdown and mathematics as the pages show them, made by the browser's own elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.async_api import Page

MADE: Final = """async (text) => {
    const { markdown } = await import('/static/lib/markdown.js');
    const box = document.createElement('div');
    box.append(markdown(text));
    for (const button of box.querySelectorAll('button')) button.remove();
    for (const element of box.querySelectorAll('*')) {
        for (const name of ['class', 'tabindex', 'role', 'aria-label', 'target', 'rel']) {
            element.removeAttribute(name);
        }
    }
    return box.innerHTML;
}"""


READ: Final = {
    "# A\n## B ##": "<h3>A</h3><h4>B</h4>",
    "**b** *e* ***x*** __b__ ~~d~~": "<p><strong>b</strong> <em>e</em> <strong><em>x</em></strong> "
    "<strong>b</strong> <del>d</del></p>",
    "snake_case_word 2 * 3 * 4 **open": "<p>snake_case_word 2 * 3 * 4 **open</p>",
    "`a*b*` and `` ` ``": "<p><code>a*b*</code> and <code>`</code></p>",
    "- a\n- b\n  - c\n\ntext": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>text</p>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "1. a\n\n   more\n2. b": "<ol><li><p>a</p><p>more</p></li><li>b</li></ol>",
    "> a\n> - b\n\n---": "<blockquote><p>a</p><ul><li>b</li></ul></blockquote><hr>",
    "one\ntwo": "<p>one<br>two</p>",
    "|a|b|\n|-|-:|\n|1|x \\| y|": "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>"
    "<tr><td>1</td><td>x | y</td></tr></tbody></table></div>",
    "|a|b|\n|-|-|\n|1|\n|1|2|3|": "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>"
    "<tr><td>1</td></tr><tr><td>1</td><td>2</td></tr></tbody></table></div>",
    "```py\n<b>\n": "<figure><figcaption><span>py</span></figcaption><pre><code>&lt;b&gt;\n"
    "</code></pre></figure>",
    "[a](https://e.example/(x)) ![p](https://e.example/p.png)": '<p><a href="https://e.example/(x)">'
    'a</a> <a href="https://e.example/p.png">Picture: p</a></p>',
    "see https://e.example/x.": '<p>see <a href="https://e.example/x">https://e.example/x</a>.</p>',
    "(https://e.example/Foo_(bar)).": '<p>(<a href="https://e.example/Foo_(bar)">'
    "https://e.example/Foo_(bar)</a>).</p>",
    "[a](javascript:x)": "<p>[a](javascript:x)</p>",
    "<b>no</b> &lt; \\*": "<p>&lt;b&gt;no&lt;/b&gt; &lt; *</p>",
    "$5 and $10, or $5-$6": "<p>$5 and $10, or $5-$6</p>",
}


async def test_usual_model_outputs_are_parsed(on_a_page: Page) -> None:
    made = {text: await on_a_page.evaluate(MADE, text) for text in READ}
    assert made == READ


async def test_links_lead_to_a_window_of_their_own_that_knows_nothing_of_ours(
    on_a_page: Page,
) -> None:
    seen: Any = await on_a_page.evaluate(
        """async () => {
            const { markdown } = await import('/static/lib/markdown.js');
            const made = markdown(
                '[a](https://e.example) [b](//e.example) [c](/\\\\e.example) [d](/runs)'
            );
            return [...made.querySelectorAll('a')].map((a) => [a.target, a.rel]);
        }"""
    )
    assert seen == [*[["_blank", "noopener noreferrer"]] * 3, ["", ""]]


async def test_mathematics_is_mathml_and_what_cannot_be_read_stays_as_it_was(
    on_a_page: Page,
) -> None:
    text = r"$x^2$, \(y\), $$\frac{a}{b}$$ and $\bad{$" + "\n\n\\[\n\\int_0^1 x\\,dx\n\\]"
    await on_a_page.evaluate(
        """async (text) => {
            const { markdown } = await import('/static/lib/markdown.js');
            document.querySelector('main').replaceChildren(markdown(text));
        }""",
        text,
    )
    await on_a_page.locator("math mfrac").wait_for(state="attached")
    assert await on_a_page.locator("math").count() == 4
    assert await on_a_page.locator("math[display=block]").count() == 2
    assert r"\bad{" in await on_a_page.locator("main").inner_text()
    assert await on_a_page.evaluate(
        "getComputedStyle(document.querySelector('mfrac')).display"
    ) in (
        "block math",
        "math",
    )


async def test_code_is_copied_by_a_button(on_a_page: Page) -> None:
    await on_a_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await on_a_page.evaluate(
        """async () => {
            const { markdown } = await import('/static/lib/markdown.js');
            document.querySelector('main').replaceChildren(markdown('```\\nx = 1\\n```'));
        }"""
    )
    await on_a_page.get_by_role("button", name="Copy").click()
    await on_a_page.get_by_text("Copied").wait_for()
    assert await on_a_page.evaluate("navigator.clipboard.readText()") == "x = 1"


async def test_no_text_takes_long_to_read(on_a_page: Page) -> None:
    """Were the time not linear, one of these would take minutes."""
    pieces = (
        *("*", "[", "[a](", "`a", "_a", "**a", "- ", "> ", "a *b", "![](", "\\(", "<", "|"),
        *("1. ", "a\n", "a\n\n", "- a\n"),
    )
    wide = "|a" * 2000 + "\n" + "|-" * 2000 + "\n" + "|\n" * 2000
    long = "|a\n|-\n" + "|b\n" * 30_000
    item_of_many = "- a\n" + "  # b\n  c\n" * 10_000
    took = await on_a_page.evaluate(
        """async (texts) => {
            const { markdown } = await import('/static/lib/markdown.js');
            return texts.map((text) => {
                const began = performance.now();
                markdown(text);
                return performance.now() - began;
            });
        }""",
        [*(piece * (100_000 // len(piece)) for piece in pieces), wide, long, item_of_many],
    )
    assert max(took) < 3000
