"""What is refused of browsers, and that nothing is of other clients."""

from __future__ import annotations

import pytest

from podium.config import ServerSettings
from podium.server.api_error import ApiError
from podium.server.endpoints.http import check_request
from podium.workers import ScriptedWorker
from support.serving import PLAIN, application, serving

LOOPBACK = ServerSettings()
KEYED = ServerSettings(require_keys=True, host="0.0.0.0")
NAMED = ServerSettings(allowed_hosts=("podium.example.com", "notes.example.com"))
HERE = {"host": "127.0.0.1:7755"}
JSON = {"content-type": "application/json"}


def is_refused(
    headers: dict[str, str], settings: ServerSettings = LOOPBACK, method: str = "POST"
) -> bool:
    try:
        check_request(method, headers, settings)
    except ApiError as refusal:
        return refusal.status in (400, 403)
    return False


@pytest.mark.parametrize(
    "headers",
    [
        {},
        JSON,
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": "application/vnd.api+json"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"user-agent": "OpenAI/Python", "authorization": "Bearer x"},
    ],
    ids=["nothing", "json", "with a charset", "a kind of json", "curl -d", "an sdk"],
)
@pytest.mark.parametrize("settings", [LOOPBACK, KEYED], ids=["loopback", "keys"])
def test_clients_that_are_no_browsers_are_let_through(
    headers: dict[str, str], settings: ServerSettings
) -> None:
    assert not is_refused(HERE | headers, settings)


@pytest.mark.parametrize(
    "said",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("settings", [LOOPBACK, KEYED], ids=["loopback", "keys"])
def test_a_page_of_another_origin_changes_nothing(
    said: dict[str, str], settings: ServerSettings
) -> None:
    headers = HERE | JSON | said
    assert is_refused(headers, settings)
    assert is_refused(headers, settings, "DELETE")
    assert not is_refused(headers, settings, "GET")
    assert not is_refused(headers | {"authorization": "Bearer pk_x"}, settings)


@pytest.mark.parametrize(
    "said",
    [
        {"origin": "http://127.0.0.1:7755"},
        {"origin": "http://127.0.0.1:7755", "sec-fetch-site": "same-origin"},
        {"origin": "https://podium.example.com", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
def test_our_own_pages_are_let_through(said: dict[str, str]) -> None:
    assert not is_refused(HERE | JSON | said)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "text/xml"])
def test_a_body_that_is_not_json_is_refused(kind: str) -> None:
    assert is_refused(HERE | {"content-type": kind})


def test_a_form_of_a_browser_is_refused() -> None:
    form = HERE | {"content-type": "application/x-www-form-urlencoded"}
    assert is_refused(form | {"sec-fetch-site": "same-origin"})


@pytest.mark.parametrize(
    "host", ["evil.example:7755", "127.0.0.1.nip.io", "LOCALHOST.evil.org", "[x"]
)
def test_without_keys_an_ambiguous_host_is_refused_on_loopback(host: str) -> None:
    assert is_refused({"host": host}, method="GET")
    assert not is_refused({"host": host}, KEYED, "GET")
    assert not is_refused({"host": host}, ServerSettings(host="0.0.0.0"), "GET")


@pytest.mark.parametrize(
    "host",
    [
        "localhost:7755",
        "LOCALHOST",
        "127.0.0.1",
        "[::1]:7755",
        "192.168.1.2",
        "workstation:7755",
        "podium.localhost",
        "host.docker.internal:7755",
    ],
)
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert not is_refused({"host": host}, method="GET")


def test_names_that_the_configuration_gives_are_answered() -> None:
    assert not is_refused({"host": "podium.example.com"}, NAMED)
    page = {"origin": "https://notes.example.com", "sec-fetch-site": "cross-site"}
    assert not is_refused(HERE | page, NAMED)
    assert is_refused(HERE | page | {"origin": "https://notes.example.org"}, NAMED)


@pytest.mark.parametrize("path", [PLAIN, "/v1/plan", "/session", "/v1/runs/x/feedback"])
async def test_the_server_itself_refuses_them(path: str) -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        for headers in (
            {"Origin": "https://evil.example", "Content-Type": "text/plain"},
            {"Origin": "https://evil.example", "Content-Type": "application/json"},
            {"Host": "evil.example", "Content-Type": "application/json"},
        ):
            refused = await served.client.post(path, content=b'{"score": 1}', headers=headers)
            assert refused.status_code == 403, headers
        rebound = await served.client.get("/v1/runs", headers={"Host": "evil.example"})
        assert rebound.status_code == 403
