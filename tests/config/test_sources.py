from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from podium.config import Settings, discover_settings, load
from podium.config.schema import POOLS
from podium.config.settings import DEFAULT_RUN_USD
from podium.config.sources import DEFAULT_POOL
from podium.core.budget import Budget
from podium.core.errors import ConfigError

Write = Callable[..., Path]


def worker(name: str) -> str:
    return f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "gpt-6-luna"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own directory, empty unless a test writes into it."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def current(tmp_path: Path, **environment: str) -> Settings:
    return await discover_settings(environment, directory=tmp_path)


async def test_the_command_lines_file_comes_first(write: Write, tmp_path: Path) -> None:
    write(worker("here"))
    named = write(worker("variable"), "variable.toml")
    chosen = write(worker("chosen"), "chosen.toml")
    settings = await discover_settings(
        {"PODIUM_CONFIG": str(named)}, config=chosen, directory=tmp_path
    )
    assert settings.pool.names == ("chosen",)
    assert settings.source == str(chosen)


async def test_the_variables_file_comes_second(write: Write, tmp_path: Path) -> None:
    write(worker("here"))
    named = write(worker("variable"), "variable.toml")
    settings = await current(tmp_path, PODIUM_CONFIG=str(named))
    assert settings.pool.names == ("variable",)


async def test_the_directorys_file_comes_third(write: Write, tmp_path: Path) -> None:
    write(worker("here"))
    write(worker("own"), "home/podium.toml")
    settings = await current(tmp_path, OPENAI_API_KEY="key")
    assert settings.pool.names == ("here",)


async def test_the_users_own_file_comes_fourth(write: Write, tmp_path: Path) -> None:
    write(worker("own"), "home/podium.toml")
    settings = await current(tmp_path, OPENAI_API_KEY="key")
    assert settings.pool.names == ("own",)


async def test_a_named_file_that_is_missing_is_an_error_and_not_passed_over(
    write: Write, tmp_path: Path
) -> None:
    write(worker("here"))
    with pytest.raises(
        ConfigError, match=r"PODIUM_CONFIG names .*nowhere\.toml, which does not exist"
    ):
        await current(tmp_path, PODIUM_CONFIG=str(tmp_path / "nowhere.toml"))


async def test_without_a_file_the_workers_come_from_the_environment(tmp_path: Path) -> None:
    settings = await current(tmp_path, ANTHROPIC_API_KEY="key", GEMINI_API_KEY="key")
    assert settings.source == "the environment (ANTHROPIC_API_KEY, GEMINI_API_KEY)"
    assert {profile.provider for profile in settings.pool} == {"anthropic", "google"}
    assert settings.conductor.kind == "model"
    assert settings.conductor.worker is settings["gemini-3.8-flash"]


@pytest.mark.parametrize(
    ("variable", "planner"),
    [
        ("OPENAI_API_KEY", "gpt-6.1-terra"),
        ("ANTHROPIC_API_KEY", "claude-sonnet-5-5"),
        ("GOOGLE_API_KEY", "gemini-3.8-flash"),
        ("OPENROUTER_API_KEY", "gpt-6.1-terra"),
        ("DEEPSEEK_API_KEY", "deepseek-flash"),
        ("MISTRAL_API_KEY", "mistral-medium-3.5"),
        ("XAI_API_KEY", "grok-4.7"),
        ("TOGETHER_API_KEY", "gpt-oss-120b"),
        ("GROQ_API_KEY", "gpt-oss-120b"),
    ],
)
async def test_one_key_is_enough_to_conduct(tmp_path: Path, variable: str, planner: str) -> None:
    settings = await current(tmp_path, **{variable: "key"})
    assert settings.conductor.worker is settings[planner]
    for item in settings.workers:
        assert item.endpoint({variable: "key"}).api_key == "key"
        assert item.profile.price is not None


async def test_a_file_without_workers_keeps_its_other_tables(write: Write, tmp_path: Path) -> None:
    path = write("[budget]\ncalls = 7\n[conductor]\nkind = 'router'")
    settings = await current(tmp_path, GROQ_API_KEY="key")
    assert settings.budget.calls == 7
    assert settings.conductor.kind == "router"
    assert len(settings.workers) == 2
    assert settings.source == f"{path} with the environment (GROQ_API_KEY)"


async def test_every_table_of_a_pool_file_takes_the_place_of_the_configurations(
    write: Write, tmp_path: Path
) -> None:
    path = write("[budget]\ncalls = 7\n[retry]\nattempts = 2\n" + worker("here"))
    pool = write("[budget]\nseconds = 3\n" + worker("pooled"), "pools/pool.toml")
    settings = await discover_settings({}, pool=pool, directory=tmp_path)
    assert settings.pool.names == ("pooled",)
    assert settings.budget == Budget(seconds=3)
    assert settings.retry.attempts == 2
    assert settings.source == f"{path} with {pool}"


async def test_the_worker_that_plans_in_the_configuration_still_plans_under_a_pool_file(
    write: Write, tmp_path: Path
) -> None:
    write("[conductor]\nmodel = 'leader'\n" + worker("leader"))
    pool = write(worker("pooled"), "pool.toml")
    settings = await discover_settings({}, pool=pool, directory=tmp_path)
    assert settings.pool.names == ("pooled",)
    assert settings.conductor.worker is not None
    assert settings.conductor.worker.profile.name == "leader"


async def test_a_path_in_the_configuration_stays_where_it_was_under_a_pool_file(
    write: Write, tmp_path: Path
) -> None:
    write("[store]\npath = 'runs.db'")
    pool = write(worker("pooled"), "pools/pool.toml")
    settings = await discover_settings({}, pool=pool, directory=tmp_path)
    assert settings.store.path == tmp_path / "runs.db"


async def test_a_pool_file_needs_no_configuration(write: Write, tmp_path: Path) -> None:
    pool = write(worker("pooled"), "pool.toml")
    settings = await discover_settings({}, pool=pool, directory=tmp_path)
    assert settings.pool.names == ("pooled",)
    assert settings.source == str(pool)


async def test_environment_problems_are_among_the_warnings(tmp_path: Path) -> None:
    settings = await current(tmp_path, GROQ_API_KEY="key", OLLAMA_HOST="127.0.0.1:1")
    assert len(settings.warnings) == 1
    assert "OLLAMA_HOST" in settings.warnings[0]


async def test_no_key_shows_in_the_settings(tmp_path: Path) -> None:
    secret = "sk-proj-0123456789abcdef"
    assert secret not in repr(await current(tmp_path, OPENAI_API_KEY=secret))


async def test_with_no_file_and_no_key_the_default_pool_is_used(tmp_path: Path) -> None:
    settings = await current(tmp_path, PATH="/bin")
    assert settings.source == "the default pool"
    assert settings.pool == load(DEFAULT_POOL).pool
    assert [profile.provider for profile in settings.pool.workers] == ["llamacpp", "python"]
    assert settings.pool.sole_model is not None


@pytest.mark.parametrize("name", ["default", "tiny", "etudes", "scripted"])
async def test_the_pools_of_podium_are_known_by_name(tmp_path: Path, name: str) -> None:
    named = await discover_settings({}, pool=Path(name), directory=tmp_path)
    assert named.pool == load(name).pool == load(POOLS / f"{name}.toml").pool
    by_variable = await current(tmp_path, PODIUM_POOL=name)
    assert by_variable.pool == named.pool
    assert ("misleading" in named.pool.names) == (name == "etudes")


async def test_python_worker_needs_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def problem() -> str:
        return "this machine cannot keep programs from its files"

    monkeypatch.setattr("podium.config.sources.isolation_problem", problem)
    settings = await current(tmp_path)
    assert settings.pool.names == ("qwen2.5-coder",)
    assert settings.warnings == (
        "worker 'python' is left out: this machine cannot keep programs from its files",
    )


async def test_a_server_runs_programs_only_if_configured_to(write: Write, tmp_path: Path) -> None:
    settings = await discover_settings({}, directory=tmp_path, is_server=True)
    assert settings.pool.names == ("qwen2.5-coder",)
    assert "[server] allow_python_workers = true" in settings.warnings[0]
    write("[server]\nallow_python_workers = true")
    allowed = await discover_settings({}, directory=tmp_path, is_server=True)
    assert allowed.pool.names == ("qwen2.5-coder", "python")
    assert not allowed.warnings


async def test_a_run_has_a_default_cap_where_money_is_involved(
    write: Write, tmp_path: Path
) -> None:
    paid = await current(tmp_path, OPENAI_API_KEY="key")
    assert (paid.budget.usd, paid.run_budget.usd) == (None, DEFAULT_RUN_USD)
    assert (await current(tmp_path)).run_budget.usd is None, "local models are free"
    write("[budget]\nusd = 7.5")
    assert (await current(tmp_path, OPENAI_API_KEY="key")).run_budget.usd == 7.5
    write('[[worker]]\nname = "a"\nprovider = "openai-compatible"\nbase_url = "http://h/v1"\n')
    assert (await current(tmp_path)).run_budget.usd is None, "nothing is known to cap"


async def test_file_overrides_the_default_pool_key_by_key(write: Write, tmp_path: Path) -> None:
    path = write("[budget]\ncalls = 7\nusd = 0.01\n[conductor]\nrounds = 3")
    settings = await current(tmp_path)
    assert settings.source == f"{path} with the default pool"
    assert settings.budget == Budget(calls=7, usd=0.01)
    assert settings.conductor == replace(load(DEFAULT_POOL).conductor, rounds=3)
