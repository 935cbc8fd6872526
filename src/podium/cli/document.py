"""The JSON object of a comparison. Those of runs and plans are `podium.document`'s."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from podium.cli.comparison import Difference


def comparison_document(differences: list[Difference]) -> list[dict[str, Any]]:
    """What `runs diff` found."""
    return [asdict(difference) for difference in differences]
