"""The image, the compose files and the manifest, read: scripts/image builds and starts the image,
and scripts/manifests validates the manifest by its schema."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from podium.config import load
from podium.config.schema import read_file
from podium.server.app import health_router as router
from podium.store.sql.database import CONNECTIONS
from podium.workers.endpoints import KNOWN_ENDPOINTS

ROOT: Final = Path(__file__).parents[1]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE: Final = (ROOT / "compose.yaml").read_text("utf-8")

INSTRUCTIONS: Final = [
    line.split(maxsplit=1)
    for line in DOCKERFILE.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
LAST_STAGE: Final = INSTRUCTIONS[
    max(where for where, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :
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
        "requirements-serve.lock ./",
        "pyproject.toml README.md LICENSE ./",
        "src ./src",
        "lab ./lab",
        "--from=build /opt/podium /opt/podium",
    ]
    assert not [name for name, _ in INSTRUCTIONS if name == "ARG"]
    assert not re.search(r"(KEY|TOKEN|PASSWORD|SECRET)\s*=", DOCKERFILE)
    allowed = [line[1:] for line in ignored() if line.startswith("!")]
    assert allowed == [
        *("requirements-serve.lock", "pyproject.toml", "README.md", "LICENSE", "src", "lab"),
    ]
    assert ignored()[0] == "*"


def ignored() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_image_requirements_are_locked_with_hashes() -> None:
    install_command = re.findall(r"pip install (.*)", DOCKERFILE)
    assert install_command == [
        "--require-hashes --requirement requirements-serve.lock",
        "--no-deps .",
    ]


def test_the_image_has_all_of_the_extras_that_its_page_names() -> None:
    page = (ROOT / "docs" / "reference" / "deployment.md").read_text("utf-8")
    (named,) = re.findall(r"It has the extras (.*?), and what", page)
    locked = (ROOT / "requirements-serve.lock").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for extra in ("postgres", "otel", "router"):
        assert f"`{extra}`" in named
        for needed in extras[extra]:
            (package,) = re.findall(r"^[a-z0-9-]+", needed)
            assert f"\n{package}==" in locked


def test_the_image_is_healthy_where_the_server_says_so_and_asks_for_keys() -> None:
    health = said("HEALTHCHECK")
    assert "http://127.0.0.1:7755/healthz" in health
    assert "/healthz" in [getattr(route, "path", "") for route in router.routes]
    assert said("EXPOSE") == "7755"
    assert said("ENTRYPOINT") == '["podium"]'
    assert '"--host", "0.0.0.0", "--port", "7755", "--keys"' in said("CMD")


def test_the_configurations_that_compose_mounts_are_valid_and_differ_in_the_store_alone() -> None:
    assert "./deploy/${PODIUM_FILE:-single.toml}:/etc/podium/podium.toml:ro" in COMPOSE
    assert "PODIUM_CONFIG: /etc/podium/podium.toml" in COMPOSE
    single = read_file(ROOT / "deploy" / "single.toml")
    replicas = read_file(ROOT / "deploy" / "podium.toml")
    assert single.server.require_keys
    assert (single.store.url, replicas.store.url) == ("", "postgresql://podium@postgres/podium")
    assert single.model_copy(update={"store": replicas.store}) == replicas


def test_a_worker_added_to_it_makes_it_whole(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "podium.toml").read_text("utf-8")
    worker = '\n[[worker]]\nname = "a"\nprovider = "scripted"\noptions = { reply = "yes" }\n'
    (tmp_path / "podium.toml").write_text(text + worker, "utf-8")
    assert load(tmp_path / "podium.toml").budget.calls == 24


VENDOR_VARIABLES: Final = {
    variable
    for known in KNOWN_ENDPOINTS.values()
    for variable in (
        *known.key_variables,
        *known.token_variables,
        known.address_variable,
        *(name for names in known.placeholders.values() for name in names),
    )
    if variable
}


# ---- replicas

yaml: Final = pytest.importorskip("yaml")
REPLICAS: Final = ROOT / "deploy" / "replicas"


def replicas() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((REPLICAS / "compose.yaml").read_text())["services"]
    return services


def objects() -> dict[str, dict[str, Any]]:
    """What the manifest for Kubernetes makes, by kind."""
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8")
    return {made["kind"]: made for made in yaml.safe_load_all(text)}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
    return found


def test_compose_has_no_secret_and_listens_to_this_machine_alone() -> None:
    podium, postgres = services()["podium"], services()["postgres"]
    given = podium["environment"]
    assert given["PODIUM_SESSION_SECRET"].startswith("${PODIUM_SESSION_SECRET:?")
    assert given["PGPASSWORD"] == postgres["environment"]["POSTGRES_PASSWORD"]
    assert given["PGPASSWORD"] == "${POSTGRES_PASSWORD:-}", "Postgres itself refuses an empty one"
    assert podium["ports"] == ["127.0.0.1:7755:7755"]
    assert podium["read_only"] is True


def test_compose_passes_every_variable_of_every_vendor() -> None:
    passed = {name for name, value in services()["podium"]["environment"].items() if value is None}
    assert passed == VENDOR_VARIABLES | {"OTEL_EXPORTER_OTLP_ENDPOINT"}


def test_compose_adds_tls_ollama_and_postgres_by_profiles() -> None:
    found = services()
    assert "profiles" not in found["podium"]
    named = {"caddy": ["tls"], "ollama": ["ollama"], "postgres": ["postgres"]}
    assert {name: found[name]["profiles"] for name in named} == named
    assert "--to podium:7755" in found["caddy"]["command"]
    assert found["podium"]["depends_on"]["postgres"]["required"] is False


def test_replicas_in_compose_are_what_the_one_is_and_share_database_and_sessions() -> None:
    one = services()["podium"]
    found = replicas()
    assert found["podium-1"] == found["podium-2"] == found["podium-3"]
    for key in ("image", "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period"):
        assert found["podium-1"][key] == one[key]
    variables = found["podium-1"]["environment"]
    assert variables.keys() == one["environment"].keys()
    assert variables["PODIUM_SESSION_SECRET"].startswith("${PODIUM_SESSION_SECRET:?")
    assert variables["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    assert "ports" not in found["podium-1"]
    assert found["balancer"]["ports"] == ["127.0.0.1:7755:7755"]


def test_the_database_in_compose_has_room_for_the_connections_of_all_replicas() -> None:
    found = replicas()
    room = re.search(r"max_connections=(\d+)", " ".join(found["postgres"]["command"]))
    assert room is not None
    assert int(room[1]) > CONNECTIONS * sum("podium" in name for name in found)
    for page in ("docs/reference/scaling.md", "deploy/replicas/compose.yaml"):
        assert f"up to {CONNECTIONS}" in (ROOT / page).read_text("utf-8")


def test_the_load_balancer_checks_readiness_and_lists_every_replica() -> None:
    text = (REPLICAS / "haproxy.cfg").read_text("utf-8")
    assert "option httpchk GET /readyz" in text
    assert "/readyz" in [getattr(route, "path", "") for route in router.routes]
    assert "retry-on conn-failure\n" in text, "what was received is not sent again"
    named = re.findall(r'server (podium-\d) "\$\{(\w+)\}"', text)
    response = replicas()["balancer"]["environment"]
    assert [response[variable] for _, variable in named] == [f"{name}:7755" for name, _ in named]
    assert {name for name, _ in named} == {name for name in replicas() if "podium" in name}


def test_the_manifest_replaces_replicas_one_by_one_and_lets_each_finish() -> None:
    deployment = objects()["Deployment"]["spec"]
    assert deployment["replicas"] == 3
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert objects()["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    waiting = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    tables = objects()["ConfigMap"]["data"]["podium.toml"]
    drain = re.search(r"drain_seconds = (\d+)", tables)
    assert drain is not None
    assert pod["terminationGracePeriodSeconds"] > waiting + int(drain[1])
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    labels = {"app": "podium"}
    assert objects()["Service"]["spec"]["selector"] == labels
    assert deployment["template"]["metadata"]["labels"] == labels


def test_the_manifest_runs_the_image_as_the_image_is_meant_to_be_run(tmp_path: Path) -> None:
    pod = objects()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert f"{pod['securityContext']['runAsUser']}:" in said("USER") + ":"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["args"][:6] == ["serve", "--host", "0.0.0.0", "--port", "7755", "--keys"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/podium", "/var/lib/podium", "/tmp"} == mounted
    assert container["envFrom"] == [{"secretRef": {"name": "podium"}}], "no secret is written down"
    file = tmp_path / "podium.toml"
    file.write_text(objects()["ConfigMap"]["data"]["podium.toml"], "utf-8")
    tables = read_file(file)
    assert (tables.store.url, tables.server.require_keys) == (
        "postgresql://podium@postgres/podium",
        True,
    )
