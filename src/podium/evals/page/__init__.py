"""Pages about evaluations: one file that shows everything and needs nothing, and pictures.

    write_report([Path("measured/math500")], Path("report"))
    write_comparison(Path("measured/before"), Path("measured/after"), "conductor", Path("report"))

    report, comparing   what is on which page
    evaluation          one evaluation: headline, table, charts, failures
    frontier, lengths, heat, sheet      the pictures, as scenes
    scene, pictures     scenes as SVG in the page, and as PNG files
    markup, document    HTML that cannot be broken out of

What is counted is `podium.evals.tables`, and so is reading evaluations back.
"""

from __future__ import annotations

from podium.evals.page.comparing import write_comparison
from podium.evals.page.report import write_report

__all__ = ["write_comparison", "write_report"]
