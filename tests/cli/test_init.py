"""`podium init`: what it finds, what it writes, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium, Vendor
from podium.cli.init import read_available_gigabytes, render_config
from podium.config import load
from podium.config.workers import WorkerTable


@pytest.fixture
def hosted(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> Vendor:
    """A vendor with a key in the environment, at an address of this machine."""
    monkeypatch.setenv("TOGETHER_API_KEY", "sk-secret")
    monkeypatch.setenv("TOGETHER_BASE_URL", vendor.url.removesuffix("/v1"))
    return vendor


def test_a_key_becomes_a_pool_with_a_cap_that_answers(podium: Podium, hosted: Vendor) -> None:
    ended = podium("init", "--yes")
    assert ended.code == 0, ended.err
    text = Path("podium.toml").read_text("utf-8")
    settings = load("podium.toml")
    assert {worker.profile.provider for worker in settings.workers} == {"together"}
    assert (settings.budget.usd, "sk-secret" in text) == (1.0, False)
    assert "reply of" in ended.out
    assert set(hosted.asked) >= {worker.profile.model for worker in settings.workers}


def test_a_bad_key_leaves_the_file_and_says_what_to_do(podium: Podium, hosted: Vendor) -> None:
    hosted.status = 401
    ended = podium("init", "--yes")
    assert ended.code == 1
    assert "edit podium.toml, then use podium pool check" in ended.err
    assert Path("podium.toml").is_file()


def test_an_existing_file_is_not_overwritten(podium: Podium) -> None:
    Path("podium.toml").write_text("# mine\n", "utf-8")
    ended = podium("init", "--yes")
    assert (ended.code, Path("podium.toml").read_text("utf-8")) == (2, "# mine\n")
    assert "exists and is not overwritten" in ended.err


def test_without_a_terminal_every_default_is_taken(podium: Podium, hosted: Vendor) -> None:
    ended = podium("init")
    assert ended.code == 0, ended.err
    assert ended.err.startswith("podium: no terminal to ask at: every default is taken")
    assert load("podium.toml").budget.usd == 1.0
    assert "reply of" in ended.out


def test_a_folder_that_cannot_be_written_is_named(podium: Podium, hosted: Vendor) -> None:
    Path("blocked").write_text("a file", "utf-8")
    ended = podium("init", "--yes", "--file", "blocked/podium.toml")
    assert ended.code != 0
    assert "blocked" in ended.err
    assert "Traceback" not in ended.err


def test_a_server_that_does_not_answer_is_named_in_one_line(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("PODIUM_LOCAL_SERVERS", "off")
    ended = podium("init", "--yes")
    (line,) = ended.err.splitlines()
    assert "no Ollama answers at http://127.0.0.1:9" in line
    assert (ended.code, Path("podium.toml").exists()) == (2, False)


def test_workers_that_are_declined_are_not_used(
    podium: Podium, hosted: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    monkeypatch.setattr("podium.cli.init.check_workers", lambda pool: True)
    ended = podium("init")
    assert ended.code == 0, ended.err
    assert {worker.profile.provider for worker in load("podium.toml").workers} == {
        "llamacpp",
        "python",
    }
    assert hosted.asked == []


def test_workers_of_this_machine_need_no_cap(tmp_path: Path) -> None:
    worker = WorkerTable(name="llama3.2", provider="ollama", model="llama3.2:latest")
    path = tmp_path / "podium.toml"
    path.write_text(render_config([worker], None), "utf-8")
    settings = load(path)
    assert [one.profile.name for one in settings.workers] == ["llama3.2"]
    assert settings.budget.usd is None


def test_memory_that_caches_hold_counts_as_free(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 9000000 kB\nMemFree: 10 kB\nMemAvailable:  2000000 kB\n", "utf-8")
    assert read_available_gigabytes(file) == pytest.approx(2.048)
