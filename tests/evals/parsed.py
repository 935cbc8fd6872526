"""A page as a browser takes it apart, without a browser: elements, their attributes and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("meta", "br")


@dataclass(slots=True)
class Element:
    """An element with everything inside it."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, name: str = "", **attributes: str) -> list[Element]:
        """The elements inside, of that name and with these attributes; `class_` is one of them."""
        found: list[Element] = []
        for child in self.children:
            if isinstance(child, str):
                continue
            if child.matches(name, attributes):
                found.append(child)
            found += child.all(name, **attributes)
        return found

    def one(self, name: str = "", **attributes: str) -> Element:
        found = self.all(name, **attributes)
        assert len(found) == 1, f"{len(found)} of {name} {attributes}"
        return found[0]

    def matches(self, name: str, attributes: dict[str, str]) -> bool:
        if name and self.name != name:
            return False
        return all(
            value in (self.attributes.get(key.rstrip("_").replace("_", "-")) or "").split()
            if key == "class_"
            else self.attributes.get(key.replace("_", "-")) == value
            for key, value in attributes.items()
        )

    def cells(self) -> list[list[str]]:
        """The text of a table, row by row."""
        return [
            [cell.text for cell in row.children if not isinstance(cell, str)]
            for row in self.all("tr")
        ]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"{tag} closes {self.open[-1].name}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(page: str) -> Element:
    """Take a page apart; one whose elements are not closed in order fails."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"{parser.open[-1].name} is not closed"
    return parser.root
