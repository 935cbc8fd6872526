"""The report about evaluations: one self-contained HTML file."""

from __future__ import annotations

from podium.evals.page.report import write_report

__all__ = ["write_report"]
