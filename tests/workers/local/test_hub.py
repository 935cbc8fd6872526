import hashlib
import os
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from podium.core.errors import ConfigError, StoreError
from podium.workers.local import weights

NAME = "hf:owner/repo/model.gguf"


@dataclass
class Hub:
    """A small hub: it redirects to storage, names the checksum, and continues downloads."""

    content: bytes
    requests: list[web.Request] = field(default_factory=list)
    sha256: str = ""
    names_checksum: bool = True
    continues: bool = True
    cut_after: int | None = None
    resets: bool = False
    wants_token: str = ""
    announced: int | None = None
    storage_status: int = 0

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.wants_token and request.headers.get("Authorization") != self.wants_token:
            return web.Response(status=401)
        if request.match_info["file"] != "model.gguf":
            return web.Response(status=404)
        size = len(self.content) if self.announced is None else self.announced
        headers = {"Location": "/storage/blob?signature=s3cret", "X-Linked-Size": str(size)}
        if self.names_checksum:
            headers["X-Linked-ETag"] = f'"{self.sha256}"'
        return web.Response(status=302, headers=headers)

    async def storage(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if request.method == "GET" and self.storage_status:
            return web.Response(status=self.storage_status)
        if request.headers.get("Range") == f"bytes={len(self.content)}-":
            return web.Response(status=416)
        begin = request.http_range.start or 0 if self.continues else 0
        rest = self.content[begin:]
        response = web.StreamResponse(status=206 if begin else 200)
        response.content_length = len(rest)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if self.cut_after is not None:
            await response.write(rest[: self.cut_after])
            assert request.transport is not None
            request.transport.abort() if self.resets else request.transport.close()
            return response
        await response.write(rest)
        return response

    @property
    def ranges(self) -> list[str | None]:
        """What parts of the file were asked for."""
        return [
            request.headers.get("Range")
            for request in self.requests
            if request.method == "GET" and request.path.startswith("/storage")
        ]


@pytest.fixture
async def hub(home: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    hub = Hub(content, sha256=hashlib.sha256(content).hexdigest())
    app = web.Application()
    app.router.add_route("*", "/owner/repo/resolve/{revision}/{file:.*}", hub.resolve)
    app.router.add_route("*", "/storage/blob", hub.storage)
    async with TestServer(app) as server:
        monkeypatch.setenv("HF_ENDPOINT", str(server.make_url("/")))
        for variable in ("HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        yield hub


def left_in(home: Path) -> set[str]:
    return {path.name for path in home.rglob("*") if path.is_file()}


async def test_a_file_of_the_hub_is_fetched_and_its_checksum_recorded(
    hub: Hub, home: Path, content: bytes
) -> None:
    seen: list[tuple[int, int | None]] = []
    path = await weights.pull(NAME, lambda done, total: seen.append((done, total)))
    assert path == home / "models/hub/owner/repo/model.gguf"
    assert path.read_bytes() == content
    assert seen[0] == (0, len(content))
    assert seen[-1] == (len(content), len(content))
    pulled = weights.list_models()[-1]
    assert (pulled.name, pulled.sha256, pulled.present) == (NAME, hub.sha256, True)
    assert left_in(home) == {"model.gguf", "model.gguf.json", "model.gguf.lock"}


async def test_a_pulled_file_is_not_fetched_again(hub: Hub) -> None:
    path = await weights.pull(NAME)
    hub.requests.clear()
    assert await weights.pull(NAME) == path
    assert await weights.locate(NAME, offline=True) == path
    assert hub.requests == []


@pytest.mark.parametrize("resets", [False, True])
async def test_a_download_that_broke_off_continues_where_it_stopped(
    hub: Hub, home: Path, content: bytes, resets: bool
) -> None:
    hub.cut_after, hub.resets = 70_000, resets
    with pytest.raises(ConfigError, match="pull it again to resume the download"):
        await weights.pull(NAME)
    assert not weights.find(NAME).present
    hub.cut_after = None
    path = await weights.pull(NAME)
    assert path.read_bytes() == content
    assert hub.ranges == [None, "bytes=70000-"]
    assert left_in(home) == {"model.gguf", "model.gguf.json", "model.gguf.lock"}


async def test_a_download_that_was_killed_before_its_last_move_is_not_repeated(
    hub: Hub, home: Path, content: bytes
) -> None:
    part = home / "models/hub/owner/repo" / f"model.gguf.{hub.sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    path = await weights.pull(NAME)
    assert path.read_bytes() == content
    assert hub.ranges == []


async def test_a_server_that_cannot_continue_sends_the_file_again(hub: Hub, content: bytes) -> None:
    hub.cut_after = 70_000
    with pytest.raises(ConfigError):
        await weights.pull(NAME)
    hub.cut_after, hub.continues = None, False
    path = await weights.pull(NAME)
    assert path.read_bytes() == content


async def test_a_part_of_a_file_that_has_changed_since_is_not_continued(hub: Hub) -> None:
    hub.cut_after = 70_000
    with pytest.raises(ConfigError):
        await weights.pull(NAME)
    hub.cut_after = None
    hub.content = hub.content[::-1]
    hub.sha256 = hashlib.sha256(hub.content).hexdigest()
    path = await weights.pull(NAME)
    assert path.read_bytes() == hub.content
    assert hub.ranges == [None, None]


async def test_without_a_tag_nothing_is_continued_and_the_checksum_is_our_own(
    hub: Hub, content: bytes
) -> None:
    hub.names_checksum = False
    hub.cut_after = 70_000
    with pytest.raises(ConfigError):
        await weights.pull(NAME)
    hub.cut_after = None
    path = await weights.pull(NAME)
    assert path.read_bytes() == content
    assert hub.ranges == [None, None]
    assert weights.find(NAME).sha256 == hub.sha256


async def test_a_file_that_does_not_match_the_hubs_checksum_is_dropped(
    hub: Hub, home: Path
) -> None:
    hub.sha256 = "0" * 64
    with pytest.raises(StoreError, match=f"expected {'0' * 64}; the file was deleted"):
        await weights.pull(NAME)
    assert left_in(home) == {"model.gguf.lock"}


async def test_the_token_opens_a_private_file_and_its_absence_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.wants_token = "Bearer secret"
    with pytest.raises(ConfigError, match="set HF_TOKEN to a token that may read it"):
        await weights.pull(NAME)
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert (await weights.pull(NAME)).is_file()


async def test_the_token_wins_over_what_the_users_netrc_says(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HF_TOKEN", "token")
    hub.wants_token = "Bearer token"
    assert (await weights.pull(NAME)).is_file()


async def test_the_users_proxy_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = os.environ["HF_ENDPOINT"]
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    assert (await weights.pull(NAME)).is_file()
    assert {request.host for request in hub.requests} == {"hub.invalid"}


async def test_a_file_that_the_hub_does_not_have_is_named(hub: Hub) -> None:
    with pytest.raises(ConfigError, match=r"the hub has no hf:owner/repo/other\.gguf"):
        await weights.pull("hf:owner/repo/other.gguf")


async def test_a_hub_that_cannot_be_reached_names_where_to_place_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=rf"check the network.*at {home}/models/hub/owner/repo"):
        await weights.pull(NAME)


async def test_a_revision_is_asked_for_by_its_name(hub: Hub) -> None:
    await weights.pull("hf:owner/repo@v2/model.gguf")
    assert hub.requests[0].path == "/owner/repo/resolve/v2/model.gguf"


async def test_a_file_of_another_size_than_announced_is_dropped(
    hub: Hub, home: Path, content: bytes
) -> None:
    hub.names_checksum = False
    hub.announced = len(content) + 1
    with pytest.raises(StoreError, match=f"expected {len(content) + 1:,}; the file was deleted"):
        await weights.pull(NAME)
    assert left_in(home) == {"model.gguf.lock"}


async def test_a_part_that_the_server_cannot_continue_is_dropped(
    hub: Hub, home: Path, content: bytes
) -> None:
    part = home / f"models/hub/owner/repo/model.gguf.{hub.sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    hub.announced = len(content) + 1
    with pytest.raises(ConfigError, match="HTTP 416"):
        await weights.pull(NAME)
    hub.announced = None
    assert (await weights.pull(NAME)).read_bytes() == content


async def test_the_signed_address_of_the_storage_is_not_shown(hub: Hub) -> None:
    hub.storage_status = 503
    with pytest.raises(ConfigError, match="HTTP 503") as caught:
        await weights.pull(NAME)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("http_proxy", "ada:s3cret@127.0.0.1:9"),
        ("http_proxy", "http://ada:s3cret@127.0.0.1:999999"),
        ("HF_ENDPOINT", "http://ada:s3cret@127.0.0.1:9"),
        ("HF_ENDPOINT", "http://ada:s3cret@[::1"),
    ],
)
async def test_no_password_is_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        await weights.pull(NAME)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("record", ["", "[]", '{"sha256": "x"}', '{"name": 3}', "\x00"])
async def test_a_damaged_record_does_not_spoil_the_list(hub: Hub, record: str) -> None:
    path = await weights.pull(NAME)
    path.with_name("model.gguf.json").write_text(record, "utf-8")
    assert NAME not in [model.name for model in weights.list_models()]
    assert weights.find(NAME).present
