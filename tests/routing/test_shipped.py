from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.assembly import lacking_router, mini_of
from podium.config import load
from podium.config.current import EMBEDDED_POOL
from podium.errors import ConfigError
from podium.etudes import everyday
from podium.local import weights

np = pytest.importorskip("numpy")

from podium.routing import LearnedRouter, shipped_router  # noqa: E402
from podium.routing.embedding import MODEL  # noqa: E402
from podium.routing.encoders import MINILM  # noqa: E402


def test_a_router_that_is_not_shipped_is_refused_with_the_names_of_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no router called 'other'; it ships etude-router"):
        shipped_router("other")


def test_the_embedded_pool_has_the_router_that_was_trained_with_it() -> None:
    settings = load(EMBEDDED_POOL)
    assert settings.mini is not None
    document = json.loads(shipped_router(settings.mini.shipped).read_text("utf-8"))
    trained = {(worker["name"], worker["model"]) for worker in document["workers"]}
    assert trained == {(worker.name, worker.model) for worker in settings.pool}
    assert document["encoder"]["name"] == MINILM
    assert document["source"] == "embedded-log.jsonl"


def test_the_embedded_router_is_read_and_sends_a_question_to_its_specialist() -> None:
    if not weights.find(MODEL).present:
        pytest.skip(f"the weights of {MODEL} are not here")
    settings = load(EMBEDDED_POOL)
    router = LearnedRouter.load(shipped_router("etude-router"))
    router.check(settings.pool)
    questions = ("What is 17 + 25?", "What is the capital of Japan?")
    chosen = [router.decide(question, settings.pool, 1.0).worker for question in questions]
    assert chosen == ["arithmetic", "generalist"]


def test_the_page_says_what_of_the_embedded_router_is_assumed_and_that_its_workers_are_free() -> (
    None
):
    page = " ".join((Path(__file__).parents[2] / "docs" / "routing.md").read_text("utf-8").split())
    assert f"Those of the {len(everyday('train'))} everyday questions are assumed" in page
    document = json.loads(shipped_router("etude-router").read_text("utf-8"))
    assert {worker["cost"] for worker in document["workers"]} == {0.0}
    assert "All its workers cost nothing, so the dial changes no choice" in page


def test_without_the_weights_that_it_reads_by_the_embedded_pool_has_no_router(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path_factory.mktemp("home")))
    settings = load(EMBEDDED_POOL)
    assert settings.mini is not None
    assert mini_of(settings) is None
    assert "podium models pull all-minilm-l6-v2" in lacking_router(settings.mini)
