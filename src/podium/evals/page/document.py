"""The page as a document: its head, its colours, and what keeps it to itself.

No scripts, no fonts, no pictures from elsewhere. A policy in the head forbids the browser to load
or run anything but the one style that is written here, so that even a mistake in escaping could
not be used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

from podium.evals.page.markup import Markup, element, joined
from podium.evals.page.scene import PAINTS
from podium.evals.page.tables import SHADES

DARKEST: Final = 60
"""So many percent of colour are in the darkest cell of a table: its figure stays easy to read."""

_GROUND: Final = {"ground": ("#f6f8fa", "#010409"), "hover": ("#eef2f6", "#161b22")}


def document(title: str, header: Markup, content: Markup, footer: Markup) -> str:
    """The whole page."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element("header", header),
        element("main", content),
        element("footer", footer),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def page_header(title: str, told: Sequence[str], links: Sequence[tuple[str, str]]) -> Markup:
    """The title, what was measured in a few words each, and links to the parts of the page."""
    linked = (element("a", words, href=f"#{identity}") for identity, words in links)
    return joined(
        [
            element("p", element("b", "Podium"), " evaluation", class_="brand"),
            element("h1", title),
            element("ul", *(element("li", fact) for fact in told), class_="facts"),
            element("nav", joined(linked), aria_label="Parts of this page"),
        ]
    )


def section(identity: str, heading: str, *content: str, lead: str = "") -> Markup:
    """A part of the page with a heading that can be linked to."""
    return element(
        "section",
        element("h2", heading, id=identity),
        element("p", lead, class_="lead") if lead else "",
        joined(content),
        aria_labelledby=identity,
    )


@cache
def _style() -> str:
    written = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    light, dark = (_variables(place) for place in (0, 1))
    paints = " ".join(
        f".f-{name} {{ fill: var(--{name}) }} .s-{name} {{ stroke: var(--{name}); fill: none }} "
        f".b-{name} {{ background: var(--{name}) }}"
        for name in PAINTS
    )
    shades = " ".join(
        f".h{shade} {{ background: "
        f"color-mix(in srgb, var(--conducted) {shade * DARKEST // SHADES}%, var(--paper)) }}"
        for shade in range(SHADES + 1)
    )
    return (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{paints}\n{shades}\n{written}"
    )


def _variables(place: int) -> str:
    return " ".join(
        f"--{name}: {colours[place]};" for name, colours in {**PAINTS, **_GROUND}.items()
    )
