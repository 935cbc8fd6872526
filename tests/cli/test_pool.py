from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import SCRIPTED_POOL, MakePool, Podium, Vendor
from podium.workers import ScriptedWorker


def test_the_pool_is_listed_with_prices_and_nothing_is_sent(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", "two", directory=tmp_path)
    ended = podium("pool", "list", "--pool", pool)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == f"from {pool}"
    assert "  0 one (openai-compatible/one, $1 in, $2 out per million tokens" in ended.out
    assert vendor.asked == []
    listed = podium("pool", "list", "--pool", pool, "--json").json
    assert [(worker["name"], worker["price"]["output"]) for worker in listed] == [
        ("one", 2.0),
        ("two", 2.0),
    ]


def test_check_reaches_every_worker_once(podium: Podium, vendor: Vendor, tmp_path: Path) -> None:
    pool = vendor.pool("one", "two", directory=tmp_path)
    ended = podium("pool", "check", "--pool", pool)
    assert ended.code == 0
    assert sorted(vendor.asked) == ["one", "two"]
    assert ended.out.splitlines()[0].startswith("ok: one (openai-compatible/one, ")
    assert ended.out.splitlines()[0].endswith("this cost $0.00002")


def test_check_names_workers_that_are_not_models(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"a": "ok"}, tail='[[worker]]\nname = "run"\nprovider = "python"\n')
    ended = podium("pool", "check", "--pool", pool)
    assert ended.code == 0
    assert ended.out.splitlines()[1] == "not asked, because they are not models: run"


def test_check_lists_each_worker_and_fails_if_one_does_not_answer(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", directory=tmp_path)
    with pool.open("a") as file:
        file.write('[[worker]]\nname = "gpt-5"\nprovider = "openai"\n')
    ended = podium("pool", "check", "--pool", pool, "--json")
    assert ended.code == 1
    assert ended.complaint.startswith("no answer from gpt-5; ")
    one, other = ended.json
    assert (one["worker"], one["ok"], one["error"]) == ("one", True, None)
    assert one["latency_ms"] > 0
    assert (other["worker"], other["ok"]) == ("gpt-5", False)
    assert "set OPENAI_API_KEY" in other["error"]


def test_check_leaves_out_what_is_excluded(podium: Podium, vendor: Vendor, tmp_path: Path) -> None:
    pool = vendor.pool("one", "two", directory=tmp_path)
    podium("pool", "check", "--pool", pool, "--exclude", "two")
    assert vendor.asked == ["one"]


def test_a_conductor_in_the_pool_is_not_a_worker_to_reach(
    podium: Podium, make_pool: MakePool
) -> None:
    pool = make_pool(tail='[[worker]]\nname = "deeper"\nprovider = "podium"\n')
    results = podium("pool", "check", "--pool", pool, "--json").json
    assert [result["worker"] for result in results] == ["solver"]


def test_check_closes_each_worker_that_holds_something(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Holding(ScriptedWorker):
        async def close(self) -> None:
            closed.append(self.profile.name)

    monkeypatch.setattr(
        "podium.cli.pool.connect_endpoints",
        lambda settings, environment, http: Holding(settings.profile, "ok"),
    )
    assert podium("pool", "check", "--pool", make_pool({"a": "1", "b": "2"})).code == 0
    assert sorted(closed) == ["a", "b"]


def test_check_fetches_no_adapter_while_offline(podium: Podium, tmp_path: Path) -> None:
    (tmp_path / "w.gguf").touch()
    pool = tmp_path / "local.toml"
    pool.write_text(
        '[[worker]]\nname = "a"\nprovider = "llamacpp"\nmodel = "file:w.gguf"\n'
        'options = { adapter = "hf:owner/repository/a.gguf" }\n'
    )
    ended = podium("pool", "check", "--pool", pool, "--offline", "--json")
    assert ended.code == 1
    assert "hf:owner/repository/a.gguf" in ended.json[0]["error"]
    assert "Podium is offline" in ended.json[0]["error"]


def test_offline_keeps_what_is_on_this_machine(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("local", directory=tmp_path)
    with pool.open("a") as file:
        file.write('[[worker]]\nname = "remote"\nprovider = "openai"\nfallback = "local"\n')
    listed = podium("pool", "list", "--pool", pool, "--offline", "--json").json
    assert [worker["name"] for worker in listed] == ["local"]


def test_offline_keeps_models_of_transformers_that_need_not_be_looked_up(
    podium: Podium, tmp_path: Path
) -> None:
    (tmp_path / "saved").mkdir()
    models = {"named": "smollm2-135m-instruct", "saved": f"{tmp_path}/saved", "hub": "owner/name"}
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "transformers"\nmodel = "{model}"\n'
            for name, model in models.items()
        )
    )
    listed = podium("pool", "list", "--pool", pool, "--offline", "--json").json
    assert [worker["name"] for worker in listed] == ["named", "saved"]


def test_check_fetches_no_weights_for_transformers_while_offline(
    podium: Podium, tmp_path: Path
) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(
        '[[worker]]\nname = "a"\nprovider = "transformers"\n'
        'model = "hf:owner/repository/weights.gguf"\n'
    )
    ended = podium("pool", "check", "--pool", pool, "--offline", "--json")
    assert "Podium is offline" in ended.json[0]["error"]


def test_offline_with_nothing_on_this_machine_is_refused(podium: Podium, tmp_path: Path) -> None:
    pool = tmp_path / "far.toml"
    pool.write_text('[[worker]]\nname = "remote"\nprovider = "openai"\n')
    ended = podium("pool", "list", "--pool", pool, "--offline")
    assert ended.code == 2
    assert 'provider = "llamacpp"' in ended.complaint


def test_keys_in_the_environment_make_no_worker_while_offline(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    online = podium("pool", "list", "--json").json
    assert {worker["provider"] for worker in online} == {"openai"}
    offline = podium("pool", "list", "--offline", "--json").json
    assert {worker["provider"] for worker in offline} == {"llamacpp", "python"}


def test_a_server_elsewhere_is_not_even_looked_for_while_offline(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "ollama.invalid")
    assert podium("pool", "list").code == 2
    ended = podium("pool", "list", "--offline", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert {worker["provider"] for worker in ended.json} == {"llamacpp", "python"}


def test_the_scripted_pool_is_free(podium: Podium) -> None:
    assert podium("pool", "list", "--pool", SCRIPTED_POOL).out.count(", free, ") == 4
