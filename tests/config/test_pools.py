"""The ready pools in `pools/`, which people use as they are."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from podium.conductors.builtin import PROOF_OF_CONCEPT
from podium.config import Settings, WorkerSettings, load
from podium.config.schema import read_file
from podium.config.sources import ETUDES_POOL
from podium.config.workers import PROVIDERS
from podium.core.errors import ConfigError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import Request, user
from podium.workers import KNOWN_ENDPOINTS, Endpoint, Http, connect, transformers
from podium.workers.catalogue import Catalogue

POOLS = Path(__file__).parents[2] / "pools"
TODAY = datetime.date(2026, 11, 15)
WITHOUT_ADDRESS = ("scripted", "transformers", "python")
KEYS = {variable: "key" for known in KNOWN_ENDPOINTS.values() for variable in known.key_variables}


def loaded(name: str) -> Settings:
    file = POOLS / f"{name}.toml"
    return load(file if file.exists() else Path(name), today=TODAY)


pools = pytest.mark.parametrize("path", sorted(POOLS.glob("*.toml")), ids=lambda path: path.stem)


@pools
def test_every_pool_loads_and_every_worker_can_be_reached(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "PACKAGES", ())  # connecting needs none of them
    settings = load(path, today=TODAY)
    assert len(settings.workers) >= 3
    for worker in settings.workers:
        endpoint = worker.endpoint(KEYS)
        assert endpoint.base_url or worker.profile.provider in WITHOUT_ADDRESS
        assert connect(worker.profile, endpoint, Http()).profile is worker.profile


@pools
def test_every_model_is_in_the_catalogue_or_described_in_full(path: Path) -> None:
    for worker in load(path, today=TODAY).workers:
        profile = worker.profile
        if Catalogue.load().lookup(profile.provider, profile.model) is None:
            assert profile.price is not None, profile.name
            assert profile.capabilities or profile.provider in ("scripted", "python"), profile.name
        assert profile.description, profile.name


@pools
def test_every_pool_is_in_the_table(path: Path) -> None:
    assert f"| `{path.name}` |" in (POOLS / "README.md").read_text("utf-8")


@pools
def test_every_pool_can_answer_although_models_retire(path: Path) -> None:
    settings = load(path, today=TODAY)
    planner = settings.conductor.worker
    assert planner is None or not _is_retired(planner.profile)
    for profile in settings.pool:
        if _is_retired(profile):
            assert profile.fallback, profile.name
            assert not _is_retired(settings.pool[profile.fallback]), profile.name


def _is_retired(profile: WorkerProfile) -> bool:
    entry = Catalogue.load().lookup(profile.provider, profile.model)
    return entry is not None and entry.retires is not None and entry.retires <= TODAY


def test_the_papers_workers_have_its_ids_and_settings() -> None:
    settings = loaded("paper")
    assert settings.pool.names == (
        "gemini-2.5-pro",
        "claude-sonnet-4",
        "gpt-5",
        "qwen3-32b-direct",
        "gemma-3-27b-it",
        "qwen3-32b-reasoning",
        "deepseek-r1-distill-qwen-32b",
    )
    assert settings.pool.mask_names
    assert all(profile.limits.max_output_tokens == 4096 for profile in settings.pool)
    assert settings["gpt-5"].options["reasoning_effort"] == "minimal"
    assert settings["gemini-2.5-pro"].options["generationConfig"] == {
        "temperature": 0.2,
        "thinkingConfig": {"thinkingBudget": 128},
    }
    assert settings["qwen3-32b-direct"].options["top_k"] == 20
    assert settings["qwen3-32b-direct"].options["reasoning"] == {"enabled": False}
    assert settings["qwen3-32b-reasoning"].options["reasoning"] == {"enabled": True}


def test_the_paper_pool_says_that_a_vendor_has_retired_one_of_its_models() -> None:
    assert any("claude-sonnet-4" in warning for warning in loaded("paper").warnings)


def test_the_proof_of_concepts_workers_play_the_parts_of_its_rules() -> None:
    settings = loaded("proof-of-concept")
    names = {
        PROOF_OF_CONCEPT.lead,
        PROOF_OF_CONCEPT.planner,
        PROOF_OF_CONCEPT.implementer,
        PROOF_OF_CONCEPT.technical,
        PROOF_OF_CONCEPT.practical,
    }
    assert set(settings.pool.names) == names
    assert settings.conductor.kind == "rules"


def test_no_current_pool_has_a_retired_model() -> None:
    for name in ("cheap", "frontier", "openrouter"):
        assert loaded(name).warnings == ()


def test_the_cheap_pool_keeps_its_word() -> None:
    settings = loaded("cheap")
    assert settings.budget.usd == 0.05
    assert all(profile.price and profile.price.output <= 2.5 for profile in settings.pool)


def test_the_frontier_is_three_vendors_and_a_planner_of_its_own() -> None:
    settings = loaded("frontier")
    assert {profile.provider for profile in settings.pool} == {"openai", "anthropic", "google"}
    assert settings.conductor.worker is not None
    assert settings.conductor.worker.profile.name not in settings.pool.names


def test_the_trained_etudes_are_the_embedded_pool_over_what_training_wrote() -> None:
    trained = loaded("etudes-transformers")
    embedded = read_file(ETUDES_POOL)
    directory = POOLS.parent / "trained"
    assert trained.conductor.worker is not None
    assert trained.conductor.worker.profile.provider == "transformers"
    assert adapter_of(trained.conductor.worker) == directory / "etudes-recursion" / "conductor"
    assert (trained.conductor.prompt, trained.conductor.fallback) == ("trained", "generalist")
    assert (trained.pool.mask_names, trained.pool.share_question) == (True, False)
    for worker, table in zip(trained.workers, embedded.worker, strict=True):
        profile = worker.profile
        assert (profile.name, profile.description) == (table.name, table.description)
        assert (profile.provider, profile.model) == ("transformers", table.model)
        assert profile.limits.max_output_tokens == table.limits.max_output_tokens
        assert worker.options.get("system") == table.options.get("system")
        practised = ("arithmetic", "calendar", "lists", "words")
        recipe = "etudes-practice" if profile.name in practised else "etudes-workers"
        specialist = directory / recipe / profile.name
        assert adapter_of(worker) == (specialist if "adapter" in table.options else None)


def adapter_of(worker: WorkerSettings) -> Path | None:
    adapter = worker.options.get("adapter")
    return None if adapter is None else Path(adapter).resolve()


async def test_the_scripted_pool_answers_with_no_key_and_no_network() -> None:
    for worker in loaded("scripted").workers:
        connected = connect(worker.profile, worker.endpoint({}), Http())
        reply = await connected.reply(Request((user("a question"),)))
        assert reply.text == worker.options["reply"]


def test_no_worker_of_the_scripted_pool_looks_like_a_model_and_one_calls_tools() -> None:
    settings = loaded("scripted")
    assert all(name.startswith("scripted-") for name in settings.pool.names)
    assert all(profile.description.startswith("a script: ") for profile in settings.pool)
    assert [p.name for p in settings.pool if "tools" in p.capabilities] == ["scripted-tools"]
    assert settings.conductor.kind == "rules"


@pytest.mark.parametrize("options", [{}, {"reply": 3}, {"reply": []}, {"reply": ["a", 1]}])
def test_a_scripted_worker_without_a_script_is_refused(options: dict[str, object]) -> None:
    profile = WorkerProfile(name="a", provider="scripted")
    with pytest.raises(ConfigError, match="worker 'a' is scripted and needs a script"):
        connect(profile, Endpoint(options=options), Http())


# A conductor is no connection, and local weights are connected in tests that have them.
UNCONNECTED = {CONDUCTOR_PROVIDER, "llamacpp", "transformers"}


@pytest.mark.parametrize("provider", sorted({*PROVIDERS} - UNCONNECTED))
def test_every_provider_that_a_file_may_name_can_be_connected(provider: str) -> None:
    profile = WorkerProfile(name="a", provider=provider, model="m")
    options = {"reply": "hello"} if provider == "scripted" else {}
    endpoint = Endpoint("http://127.0.0.1:1/v1", "key", options=options)
    assert connect(profile, endpoint, Http()).profile is profile
