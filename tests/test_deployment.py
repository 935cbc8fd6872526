"""What the image and the compose file promise, read from them: they are built elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from podium.config import load
from podium.config.files import read
from podium.server.endpoints.health import router

ROOT: Final = Path(__file__).parents[1]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE: Final = (ROOT / "compose.yaml").read_text("utf-8")

INSTRUCTIONS: Final = [
    line.split(maxsplit=1)
    for line in DOCKERFILE.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
LAST_STAGE: Final = INSTRUCTIONS[
    max(place for place, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :
]


def said(name: str) -> str:
    """What the last instruction of that name says, in the stage that is the image."""
    return [rest for instruction, rest in LAST_STAGE if instruction == name][-1]


def test_the_image_runs_as_an_ordinary_user_from_a_slim_base() -> None:
    assert all(rest.startswith("python:3.13-slim") for name, rest in INSTRUCTIONS if name == "FROM")
    user, _, group = said("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_image_takes_in_what_it_is_made_of_and_no_secret() -> None:
    copied = [rest for name, rest in INSTRUCTIONS if name in ("COPY", "ADD")]
    assert copied == [
        "requirements.lock ./",
        "pyproject.toml README.md LICENSE ./",
        "src ./src",
        "--from=build /opt/podium /opt/podium",
    ]
    assert not [name for name, _ in INSTRUCTIONS if name == "ARG"]
    assert not re.search(r"(KEY|TOKEN|PASSWORD|SECRET)\s*=", DOCKERFILE)
    allowed = [line[1:] for line in ignored() if line.startswith("!")]
    assert allowed == ["requirements.lock", "pyproject.toml", "README.md", "LICENSE", "src"]
    assert ignored()[0] == "*"


def ignored() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_what_the_image_installs_is_locked_with_hashes() -> None:
    assert "--require-hashes --requirement requirements.lock" in DOCKERFILE


def test_the_image_is_healthy_where_the_server_says_so_and_asks_for_keys() -> None:
    health = said("HEALTHCHECK")
    assert "http://127.0.0.1:7755/healthz" in health
    assert "/healthz" in [getattr(route, "path", "") for route in router.routes]
    assert said("EXPOSE") == "7755"
    assert said("ENTRYPOINT") == '["podium"]'
    assert '"--host", "0.0.0.0", "--port", "7755", "--keys"' in said("CMD")


def test_the_configuration_that_compose_mounts_is_valid_and_its_database_is_there() -> None:
    assert "./deploy/podium.toml:/etc/podium/podium.toml:ro" in COMPOSE
    assert "PODIUM_CONFIG: /etc/podium/podium.toml" in COMPOSE
    tables = read(ROOT / "deploy" / "podium.toml")
    assert tables.server.keys
    assert tables.store.url == "postgresql://podium@postgres/podium"
    assert "\n  postgres:\n    image: postgres:" in COMPOSE
    assert "POSTGRES_USER: podium" in COMPOSE
    assert "POSTGRES_DB: podium" in COMPOSE


def test_a_worker_added_to_it_makes_it_whole(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "podium.toml").read_text("utf-8")
    worker = '\n[[worker]]\nname = "a"\nprovider = "scripted"\noptions = { reply = "yes" }\n'
    (tmp_path / "podium.toml").write_text(text + worker, "utf-8")
    assert load(tmp_path / "podium.toml").budget.calls == 24


def test_compose_has_no_password_and_listens_to_this_machine_alone() -> None:
    passwords = re.findall(r"^\s*\w*PASSWORD\w*: (.*)$", COMPOSE, re.MULTILINE)
    assert len(passwords) == 2
    assert all(password.startswith("${POSTGRES_PASSWORD:?") for password in passwords)
    assert re.findall(r"^\s*(\w+_API_KEY):(.*)$", COMPOSE, re.MULTILINE) == [
        (f"{vendor}_API_KEY", "") for vendor in ("OPENAI", "ANTHROPIC", "GEMINI", "OPENROUTER")
    ]
    assert '"127.0.0.1:7755:7755"' in COMPOSE
    assert "read_only: true" in COMPOSE
