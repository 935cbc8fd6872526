"""Pages about evaluations: one self-contained HTML file each.

write_report([Path("measured/math500")], Path("report"))
write_comparison(Path("measured/before"), Path("measured/after"), "conductor", Path("report"))
"""

from __future__ import annotations

from podium.evals.page.comparison import write_comparison
from podium.evals.page.report import write_report

__all__ = ["write_comparison", "write_report"]
