"""`--offline`, `--exclude` and `--conductor` together: an excluded worker is never called, as
worker or as planner."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import MakePool, Podium, Vendor
from podium.cli.options import PoolOptions, conductor_option, load_settings
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run

PLAN = 'model_id = [0]\nsubtasks = ["Answer it"]\naccess_list = [[]]'
ELSEWHERE = """
[[worker]]
name = "far"
provider = "openai-compatible"
base_url = "http://vendor.example/v1"
price = { input = 1.0, output = 2.0 }
"""


@pytest.fixture
def vendor_elsewhere(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> Vendor:
    """The vendor at an address that is not this machine's: a proxy leads to it."""
    monkeypatch.setenv("http_proxy", vendor.url.removesuffix("/v1"))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    vendor.replies["far"] = PLAN
    return vendor


@pytest.fixture
def led_from_elsewhere(make_pool: MakePool, vendor_elsewhere: Vendor) -> Path:
    """A pool that plans by a vendor's model, and has one worker on this machine."""
    return make_pool({"near": "42"}, head='[conductor]\nmodel = "far"\n', tail=ELSEWHERE)


def test_offline_a_planner_elsewhere_gives_way_to_one_that_is_here(
    podium: Podium, led_from_elsewhere: Path, vendor_elsewhere: Vendor
) -> None:
    for arguments in ((), ("--conductor", "model")):
        offline = ("--offline", "--tier", "ultra")
        ended = podium("ask", "--json", *offline, "--pool", led_from_elsewhere, "q?", *arguments)
        assert (ended.code, ended.json["conductor"]) == (0, "model(near)")
        assert ended.json["answer"] == "42"
    assert vendor_elsewhere.asked == []
    assert podium("ask", "--tier", "ultra", "--pool", led_from_elsewhere, "q?").code == 0
    assert vendor_elsewhere.asked, "online it is asked, so the test can tell"


def test_offline_a_planner_that_is_in_no_pool_gives_way_as_well(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    pool = make_pool({"near": "42"}, head='[conductor]\nmodel = "openai/gpt-5"\n')
    ended = podium("ask", "--json", "--tier", "ultra", "--offline", "--pool", pool, "q?")
    assert (ended.code, ended.json["conductor"]) == (0, "model(near)")


@pytest.mark.parametrize("planner", ["far", "openai/gpt-5"])
def test_offline_a_planner_elsewhere_is_refused_when_it_is_named(
    podium: Podium,
    led_from_elsewhere: Path,
    vendor_elsewhere: Vendor,
    planner: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    ended = podium("ask", "--offline", "--conductor", planner, "--pool", led_from_elsewhere, "q?")
    assert ended.code == 2
    assert planner in ended.complaint
    assert vendor_elsewhere.asked == []


def test_offline_a_server_that_the_environment_puts_elsewhere_is_not_here(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://models.example:11434")
    pool = make_pool(tail='[[worker]]\nname = "llama"\nprovider = "ollama"\n')
    listed = podium("pool", "list", "--pool", pool, "--offline", "--json").json
    assert [worker["name"] for worker in listed] == ["solver"]


def test_offline_a_conductor_alone_is_no_pool(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({}, tail=ELSEWHERE + '[[worker]]\nname = "deep"\nprovider = "podium"\n')
    ended = podium("ask", "--offline", "--pool", pool, "q?")
    assert ended.code == 2
    assert "this pool has no local worker" in ended.complaint


@pytest.mark.parametrize(
    ("excluded", "planner"),
    [("far", "far"), ("openai-compatible", "far"), ("openai", "openai/gpt-5")],
)
def test_an_excluded_planner_is_refused_when_it_is_named(
    podium: Podium,
    led_from_elsewhere: Path,
    vendor_elsewhere: Vendor,
    excluded: str,
    planner: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with led_from_elsewhere.open("a") as file:
        file.write('[[worker]]\nname = "gpt"\nprovider = "openai"\nmodel = "gpt-5"\n')
    given = ("--exclude", excluded, "--conductor", planner, "--pool", led_from_elsewhere)
    ended = podium("ask", *given, "q?")
    assert ended.code == 2
    assert planner in ended.complaint
    assert vendor_elsewhere.asked == []


def test_a_planner_that_is_in_no_pool_can_be_excluded(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"near": "42"}, head='[conductor]\nmodel = "openai/gpt-5"\n')
    ended = podium("ask", "--json", "--tier", "ultra", "--exclude", "openai", "--pool", pool, "q?")
    assert (ended.code, ended.json["conductor"]) == (0, "model(near)")


@pytest.mark.parametrize(
    ("conductor", "named"),
    [
        ("rules", "rules"),
        ("podium(router)", "router"),
        ("model(near)", "near"),
        ("podium(model(openai/gpt-5))", "openai/gpt-5"),
        ("model(gone)", None),
        ("fixed", None),
        ("my own", None),
    ],
)
def test_a_run_continues_with_the_conductor_it_had(conductor: str, named: str | None) -> None:
    run = Run(
        id="run_1",
        question="q?",
        status="interrupted",
        pool=Pool((WorkerProfile(name="near"),)),
        conductor=conductor,
        created_at="2026-11-15T00:00:00.000+00:00",
    )
    assert conductor_option(run) == named


async def test_offline_no_server_of_tools_is_used_that_may_reach_others(
    make_pool: MakePool,
) -> None:
    head = """
    [mcp.program]
    command = "npx"
    [mcp.far]
    url = "https://example.com/mcp"
    [mcp.near]
    url = "http://127.0.0.1:9/mcp"
    """
    pool = make_pool({"a": "42"}, head=head)
    online = await load_settings(PoolOptions(pool=pool), {})
    offline = await load_settings(PoolOptions(pool=pool, offline=True), {})
    assert [server.name for server in online.mcp] == ["program", "far", "near"]
    assert [server.name for server in offline.mcp] == ["near"]
