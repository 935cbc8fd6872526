from __future__ import annotations

import json
from pathlib import Path

from benchmarks.chaos.report import ChaosFigures, ChaosRow, figures_of, updated
from benchmarks.report import NONE_YET

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "benchmarks" / "chaos" / "README.md"


def test_the_page_has_the_figures_of_the_committed_results() -> None:
    page = PAGE.read_text("utf-8")
    assert updated(page, ROOT / "results" / "chaos.json") == page, (
        "python -m benchmarks.chaos.report results/chaos.json benchmarks/chaos/README.md"
    )


def test_figures_are_a_line_for_each_part_and_peer(tmp_path: Path) -> None:
    results = tmp_path / "chaos.json"
    assert figures_of(results) == NONE_YET
    rows = [ChaosRow(name="faults", runs=5000, answered_share=0.9987, seconds=61.2, note="a | b")]
    figures = ChaosFigures(parts=rows, peers=[ChaosRow(name="LiteLLM", runs=9)], seed=4)
    results.write_text(json.dumps(figures.document()), "utf-8")
    head, rule, faults, peer, _, words = figures_of(results).splitlines()
    assert faults == "| faults | 5,000 | 0 | 0 | 99.87% | 0 | 0 | 0 | 61 | a \\| b |"
    assert peer.startswith("| LiteLLM | 9 |")
    assert head.count("|") == rule.count("|") == 11
    assert words.startswith("With seed 4, everything")
    assert words.endswith("Every promise held: yes.")


def test_a_part_that_was_not_tried_is_no_line_of_zeros(tmp_path: Path) -> None:
    results = tmp_path / "chaos.json"
    untried = ChaosRow(name="replicas", runs=0, not_tried="needs a | b")
    figures = ChaosFigures(parts=[ChaosRow(name="faults", runs=9), untried])
    results.write_text(json.dumps(figures.document()), "utf-8")
    head, _, _, line, _, words = figures_of(results).splitlines()
    assert line == "| replicas | | | | | | | | | not tried: needs a \\| b |"
    assert line.replace("\\|", "").count("|") == head.count("|")
    assert words.endswith("Every promise that was tried held: yes. Not tried: replicas.")
