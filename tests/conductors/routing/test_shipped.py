from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from podium import AsyncPodium
from podium.client.assembly import load_router, router_problem
from podium.config import load
from podium.config.sources import ETUDES_POOL, discover_settings
from podium.core.errors import ConfigError, UsageError
from podium.workers.local import weights
from podium_lab.etudes import everyday_questions

np = pytest.importorskip("numpy")

from podium.conductors.routing import LearnedRouter, shipped_router
from podium.conductors.routing.encoders import MODEL

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "etudes.md").read_text("utf-8")


def test_a_router_that_is_not_shipped_is_refused_with_the_names_of_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no router called 'other'; it ships etude-router"):
        shipped_router("other")


def test_the_embedded_pool_has_the_router_that_was_trained_with_it() -> None:
    settings = load(ETUDES_POOL)
    assert settings.mini is not None
    document = json.loads(shipped_router(settings.mini.shipped).read_text("utf-8"))
    trained = {(worker["name"], worker["model"]) for worker in document["workers"]}
    assert trained == {(worker.name, worker.model) for worker in settings.pool}
    assert document["encoder"]["encoder"]["name"] == "minilm"
    assert document["source"] == "embedded-log.jsonl"


def test_the_embedded_router_is_read_and_sends_a_question_to_its_specialist() -> None:
    if not weights.find(MODEL).present:
        pytest.skip(f"the weights of {MODEL} are not here")
    settings = load(ETUDES_POOL)
    router = LearnedRouter.load(shipped_router("etude-router"))
    router.check(settings.pool)
    questions = ("What is 17 + 25?", "What is the capital of Japan?")
    chosen = [router.decide(question, settings.pool, 1.0).worker for question in questions]
    assert chosen == ["arithmetic", "generalist"]


async def test_the_example_of_the_page_goes_to_the_specialist_that_it_names() -> None:
    if not weights.find(MODEL).present:
        pytest.skip(f"the weights of {MODEL} are not here")
    part = PAGE.partition("### The router of the études' pool")[2]
    example = re.search(r'podium ask --tier mini "(.+)" +# goes to (\w+)', part)
    assert example is not None
    settings = load(ETUDES_POOL)
    mini = load_router(settings)
    assert mini is not None
    routed = await mini.decide(example[1], settings.pool, None)
    assert (routed.worker, routed.escalated) == (example[2], False)


def test_the_page_says_what_of_the_embedded_router_is_assumed_and_that_its_workers_are_free() -> (
    None
):
    page = " ".join(PAGE.split())
    assert f"Those of the {len(everyday_questions('train'))} everyday questions are assumed" in page
    document = json.loads(shipped_router("etude-router").read_text("utf-8"))
    assert {worker["cost"] for worker in document["workers"]} == {0.0}
    assert "All its workers cost nothing, so the quality bias changes no choice" in page


@pytest.mark.parametrize("pool", [Path("etudes"), ETUDES_POOL])
async def test_without_the_weights_that_it_reads_by_the_etudes_pool_has_no_router(
    without_weights: Path, pool: Path
) -> None:
    settings = await discover_settings({}, pool=pool, directory=without_weights)
    assert settings.mini is not None
    assert load_router(settings) is None
    assert "podium models pull all-minilm-l6-v2" in router_problem(settings.mini)


async def test_a_quality_bias_is_then_refused_with_what_the_router_lacks(
    without_weights: Path,
) -> None:
    settings = await discover_settings({}, pool=ETUDES_POOL, directory=without_weights)
    async with AsyncPodium(settings=settings, store=without_weights / "runs.db") as podium:
        with pytest.raises(UsageError, match="this pool's cannot be used here") as refused:
            await podium.ask("Why?", tier="mini", quality_bias=0.2)
    assert "podium models pull all-minilm-l6-v2" in str(refused.value)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("nosuch", "Podium ships no router called 'nosuch'; it ships etude-router"),
        ("etude-router", "podium models pull all-minilm-l6-v2"),
    ],
)
@pytest.mark.parametrize("worker", ["", '[[worker]]\nname = "a"\nprovider = "scripted"\n'])
async def test_a_shipped_router_that_a_configuration_names_is_never_left_out(
    without_weights: Path, named: str, problem: str, worker: str
) -> None:
    file = without_weights / "podium.toml"
    file.write_text(f'[mini]\nrouter = "embedded/{named}"\n{worker}', "utf-8")
    settings = await discover_settings({}, config=file)
    with pytest.raises(ConfigError, match=problem):
        load_router(settings)


@pytest.fixture
def without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all Podium's home, with nothing in it."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path
