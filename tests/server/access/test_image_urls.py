from __future__ import annotations

import threading

import pytest

from podium.config import ServerSettings
from podium.core.pool import WorkerProfile
from podium.core.request import Image, Message, ToolResult, user
from podium.server.access import request_checks as request_checks
from podium.server.access.request_checks import check_image_urls, is_public
from podium.server.api_error import ApiError
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.workers import ScriptedWorker
from support.serving import application, serving

METADATA = "http://169.254.169.254/latest/meta-data"
REAL = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}


@pytest.mark.parametrize(
    "url",
    [
        METADATA,
        "http://localhost/a.png",
        "https://LOCALHOST:8080/a.png",
        "http://localhost./a.png",
        "http://127.0.0.1/a.png",
        "http://127.1/a.png",
        "http://2130706433/a.png",
        "http://0x7f000001/a.png",
        "http://0177.0.0.1/a.png",
        "http://0.0.0.0/a.png",
        "http://10.0.0.7/a.png",
        "http://172.16.3.4/a.png",
        "http://192.168.0.1/a.png",
        "http://100.64.0.1/a.png",
        "http://224.0.0.1/a.png",
        "http://[::1]/a.png",
        "http://[fe80::1]/a.png",
        "http://[fd00::1]/a.png",
        "http://[::ffff:127.0.0.1]/a.png",
        "http://[64:ff9b::7f00:1]/a.png",
        "http://[2002:7f00:1::]/a.png",
        "http://\uff11\uff12\uff17.0.0.1/a.png",
        "http://127\u30020.0.1/a.png",
        "http://127\uff610.0.1/a.png",
        "http://127\uff0e0.0.1/a.png",
        "http://169\u3002254.169.254/a.png",
        "http://x.internal\u3002/a.png",
        "http://x.internal\uff61/a.png",
        "http://x\u3002internal/a.png",
        "http://localhost\u3002/a.png",
        "http://127\u00ad.0.0.1/a.png",
        "http://127\ufe0f.0.0.1/a.png",
        "http://127.0.0.1\u3164/a.png",
        "http://x.inter\u200bnal/a.png",
        "http://[64:ff9b:1::7f00:1]/a.png",
        "http://[64:ff9b:1:ffff::808:808]/a.png",
        "http://[::7f00:1]/a.png",
        "http://redis/a.png",
        "http://printer.local/a.png",
        "http://metadata.google.internal/computeMetadata/v1",
        "http://router.lan/a.png",
        "http://public.example@127.0.0.1/a.png",
        "http://127.0.0.1\\@public.example/a.png",
        "http://127.0.0.1%2f@x/a.png",
        "http://[not an address]/a.png",
    ],
)
def test_an_address_within_a_network_is_not_public(url: str) -> None:
    assert not is_public(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "http://example.org:8080/a.png?x=127.0.0.1",
        "https://localhost.example.org/a.png",
        "https://b\u00fccher.example.org/a.png",
        "https://\u4f8b\u3048\u3002example.org/a.png",
        "https://\u0909\u0926\u093e\u0939\u0930\u0923.example.org/a.png",
        "https://1.1.1.1/a.png",
        "https://[2606:4700:4700::1111]/a.png",
        "https://user@example.org/a.png",
    ],
)
def test_an_address_on_the_internet_is_public(url: str) -> None:
    assert is_public(url)


async def test_pictures_that_tools_showed_are_looked_at_as_well() -> None:
    shown = ToolResult("c1", "see", images=(Image(url=METADATA),))
    with pytest.raises(ApiError, match="169.254.169.254.* is not public"):
        await check_image_urls([user("Look."), Message("tool", (shown,))], private=False)


async def test_a_picture_in_the_message_itself_is_nowhere_to_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_checks, "resolve", _nobody_asks)
    picture = Image(media_type="image/png", data="aGk=")
    await check_image_urls([Message("user", (picture,))], private=False)


def _nobody_asks(host: str) -> list[str]:
    raise AssertionError(f"{host} was looked up")


@pytest.mark.parametrize(
    "leads_to",
    [
        ["169.254.169.254"],
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["::1"],
        ["fe80::1%eth0"],
        ["fd00::7"],
        ["::ffff:192.168.1.1"],
        ["64:ff9b::a9fe:a9fe"],
        ["93.184.216.34", "10.0.0.1"],
    ],
)
async def test_a_name_that_leads_into_a_network_is_not_public(
    leads_to: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_checks, "resolve", {"pictures.example.org": leads_to}.__getitem__)
    picture = Image(url="https://pictures.example.org/a.png")
    with pytest.raises(ApiError, match="is not public"):
        await check_image_urls([Message("user", (picture,))], private=False)


@pytest.mark.parametrize("leads_to", [["93.184.216.34", "2606:2800:220:1::1"], []])
async def test_a_public_or_unknown_host_is_passed_on(
    leads_to: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_checks, "resolve", lambda host: leads_to)
    picture = Image(url="https://pictures.example.org/a.png")
    await check_image_urls([Message("user", (picture,))], private=False)


async def test_each_name_is_looked_up_once_and_an_address_in_figures_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(request_checks, "resolve", lambda host: asked.append(host) or [])  # type: ignore[func-returns-value]
    urls = ("https://a.example.org/1", "https://a.example.org/2", "https://1.1.1.1/3")
    await check_image_urls([Message("user", tuple(Image(url=u) for u in urls))], private=False)
    assert asked == ["a.example.org"]


async def test_a_name_without_a_timely_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    monkeypatch.setattr(request_checks, "resolve", lambda host: released.wait(10) and [])
    monkeypatch.setattr(request_checks, "RESOLVE_SECONDS", 0.01)
    picture = Image(url="https://slow.example.org/a.png")
    try:
        with pytest.raises(ApiError, match="could not be resolved"):
            await check_image_urls([Message("user", (picture,))], private=False)
    finally:
        released.set()


async def test_a_request_has_only_so_many_names_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_checks, "resolve", _nobody_asks)
    many = tuple(
        Image(url=f"https://h{n}.example.org/") for n in range(request_checks.MAX_HOSTS + 1)
    )
    with pytest.raises(ApiError, match="images at 21 hosts, more than 20"):
        await check_image_urls([Message("user", many)], private=False)


def test_the_systems_resolver_knows_this_machine_and_not_every_name() -> None:
    assert "127.0.0.1" in request_checks.resolve("localhost")
    assert request_checks.resolve("no such name") == []
    assert request_checks.resolve("a" * 300 + ".example") == []


@pytest.mark.parametrize(("allowed", "status"), [(False, 400), (True, 200)])
@pytest.mark.parametrize("model", ["podium", "seer"])
@pytest.mark.parametrize("path", [*REAL, "/v1/plan"])
async def test_no_worker_is_sent_to_a_private_address_unless_the_settings_say_so(
    path: str, model: str, allowed: bool, status: int
) -> None:
    profile = WorkerProfile(name="seer", capabilities=frozenset({"vision"}))
    seer = ScriptedWorker(profile, "a cat")
    body = {"model": "podium" if path == "/v1/plan" else model, **_body(path)}
    app = application(
        [seer], dialects=REAL, settings=ServerSettings(allow_private_image_urls=allowed)
    )
    async with serving(app) as served:
        response = await served.client.post(path, json=body)
    assert response.status_code == status, response.text
    assert bool(seer.calls) == (allowed and path != "/v1/plan")


def _body(path: str) -> dict[str, object]:
    """A picture at a private address, as that API has it."""
    if path == "/v1/responses":
        picture = {"type": "input_image", "image_url": METADATA, "detail": "auto"}
        return {"input": [{"role": "user", "content": [picture]}]}
    if path == "/v1/messages":
        shown = {"type": "image", "source": {"type": "url", "url": METADATA}}
        return {"messages": [{"role": "user", "content": [shown]}], "max_tokens": 99}
    part = {"type": "image_url", "image_url": {"url": METADATA}}
    words = {"type": "text", "text": "What is it?"}
    return {"messages": [{"role": "user", "content": [words, part]}]}
