"""Figures beside their thresholds, and the description of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import ge, le, lt
from typing import Any, Final

from podium.evals.results import markdown

AT_MOST: Final = "<="
AT_LEAST: Final = ">="
UNDER: Final = "<"
_HOLDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    AT_MOST: le,
    AT_LEAST: ge,
    UNDER: lt,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """A benchmark's results as JSON values, and the thresholds that some of them must keep."""

    document: Mapping[str, Any]
    thresholds: Mapping[str, tuple[str, float]]

    def as_json(self) -> str:
        return json.dumps(self.document)

    def as_text(self) -> str:
        """Return a table of every figure by its JSON key, beside its threshold."""
        rows = [(name, text, self._verdict(name)) for name, text in _flatten(self.document)]
        return markdown(("figure", "measured", "threshold"), rows)

    def _verdict(self, name: str) -> str:
        if name not in self.thresholds or self.document[name] is None:
            return ""
        sign, limit = self.thresholds[name]
        is_met = _HOLDS[sign](self.document[name], limit)
        return f"{sign} {limit:g}  {'met' if is_met else 'MISSED'}"


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}: ")
        else:
            yield prefix + name, "not measured" if value is None else f"{value}"


def machine() -> dict[str, Any]:
    return {"python": platform.python_version(), "cpus": os.cpu_count()}
