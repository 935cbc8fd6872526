from __future__ import annotations

import json
import os
import re

import pytest

from benchmarks.environment import LITELLM
from benchmarks.report import Figures
from benchmarks.server import Costs, server_figures

OURS = {
    "podium": (Costs(1000.0, 0.9), Costs(1600.0, 0.7), Costs(1500.0, 0.8)),
    "one_step": (Costs(700.0, 1.5),),
}
THEIRS = {"litellm": (Costs(100.0, 9.0), Costs(80.0, 12.0))}


def figures(*, peer: bool = True, seconds: float = 1.0, one_step: float = 0.004) -> Figures:
    return server_figures(
        {**OURS, **THEIRS} if peer else OURS,
        {
            "upstream": (0.001, 0.001, 0.2),
            "podium": (0.003,),
            "one_step": (one_step,),
            **({"litellm": (0.02,)} if peer else {}),
        },
        (seconds, 9.0, 0.1),
        load_average=3.21,
    )


def test_rates_are_those_of_the_quickest_turns_and_cpu_time_that_of_the_middle_one() -> None:
    measured = figures().document
    assert measured["litellm_rps_ratio"] == 16.0
    assert measured["cpu_ms"]["podium"] == 0.8
    assert measured["cpu_ms"]["litellm"] == 10.5
    assert measured["cold_start_s"] == 1.0


def test_the_first_token_is_compared_with_the_upstreams_and_the_slower_way_counts() -> None:
    assert figures().document["ttft_overhead_ms"] == pytest.approx(3.0)
    assert figures(one_step=0.002).document["ttft_overhead_ms"] == pytest.approx(2.0)


def test_the_json_line_holds_the_headline_figures_and_what_they_were_made_of() -> None:
    line = figures().as_json()
    assert "\n" not in line
    document = json.loads(line)
    headline = {
        "litellm_rps_ratio": 16.0,
        "portkey_rps_ratio": None,
        "gateway_cpu_ms": 0.8,
        "one_step_cpu_ms": 1.5,
        "ttft_overhead_ms": 3.0,
        "cold_start_s": 1.0,
    }
    assert dict(list(document.items())[:6]) == headline
    assert document["requests_per_second"] == {"podium": 1600, "one_step": 700, "litellm": 100}
    assert document["ttft_ms"]["litellm"] == 20
    assert document["litellm"] == LITELLM.version
    assert document["load_average"] == 3.21
    assert document["cpus"] == os.cpu_count()


def test_without_the_proxy_its_ratio_is_null_and_the_table_says_why() -> None:
    assert json.loads(figures(peer=False).as_json())["litellm_rps_ratio"] is None
    assert re.search(r"litellm_rps_ratio \W+ not measured", figures(peer=False).as_text())


def test_each_requirement_is_shown_with_its_figure_and_verdict() -> None:
    table = figures().as_text()
    for threshold in (">= 15", "<= 1.1", "<= 2.5", "<= 5", "< 2"):
        assert f"{threshold}  met" in table
    assert "MISSED" not in table
    table = figures(seconds=2.0, one_step=0.0061).as_text()
    assert "<= 5  MISSED" in table
    assert "< 2  MISSED" in table
