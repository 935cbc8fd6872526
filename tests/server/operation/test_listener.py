from __future__ import annotations

import asyncio
import socket

import pytest
import uvicorn

from podium.config import ServerSettings
from podium.core.errors import ConfigError
from podium.server.endpoints.http import ResponseTransport
from podium.server.startup import (
    bind_socket,
    format_address,
    log_address,
    shutdown_message,
)


def test_an_address_that_is_taken_is_ours_and_known() -> None:
    with bind_socket(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        assert format_address(taken) == f"http://127.0.0.1:{port}"
        taken.listen()
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1 is taken.*--port"):
            bind_socket(ServerSettings(port=port))


def test_an_address_of_the_newer_protocol_is_shown_in_brackets() -> None:
    try:
        taken = bind_socket(ServerSettings(host="::1", port=0))
    except ConfigError:
        pytest.skip("this machine has no ::1")
    with taken:
        assert format_address(taken).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_this_machine_has_not_is_reported(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"{host}.*(--host|choose another)"):
        bind_socket(ServerSettings(host=host, port=0))


def test_a_port_that_is_not_for_ordinary_users_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, address: object, /) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(ConfigError, match="from 1024 on"):
        bind_socket(ServerSettings(port=80))


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (0, "stopping"),
        (1, "stopping: 1 request may end within 7 s; Ctrl-C again stops now"),
        (2, "stopping: 2 requests may end within 7 s; Ctrl-C again stops now"),
        (None, "stopping: requests may end within 7 s; Ctrl-C again stops now"),
    ],
)
def test_running_parts_are_reported_as_far_as_known(requests: int | None, said: str) -> None:
    configuration = uvicorn.Config("nothing:app", timeout_graceful_shutdown=7, log_config=None)
    assert shutdown_message(requests, configuration) == said


def test_the_first_line_says_that_there_are_pages(caplog: pytest.LogCaptureFixture) -> None:
    with bind_socket(ServerSettings(port=0)) as taken, caplog.at_level("INFO", "podium.server"):
        address = format_address(taken)
        log_address(taken)
    (line,) = caplog.messages
    assert line == f"running on {address}, open it in a browser; Ctrl-C stops it"


class WriteRecorder(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def join_writes(transport: WriteRecorder) -> ResponseTransport:
    return ResponseTransport(transport, asyncio.get_running_loop())


async def test_a_head_with_a_length_is_written_together_with_its_body() -> None:
    transport = WriteRecorder()
    joined = await join_writes(transport)
    joined.write(HEAD)
    await asyncio.sleep(0)
    assert transport.written == []
    joined.write(b"{}")
    assert transport.written == [HEAD + b"{}"]


async def test_the_head_of_a_stream_is_written_with_a_chunk_that_is_there() -> None:
    transport = WriteRecorder()
    joined = await join_writes(transport)
    joined.write(CHUNKED)
    joined.write(b"first")
    await asyncio.sleep(0)
    joined.write(b"second")
    assert transport.written == [CHUNKED + b"first", b"second"]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_chunk() -> None:
    transport = WriteRecorder()
    joined = await join_writes(transport)
    joined.write(CHUNKED)
    await asyncio.sleep(0)
    assert transport.written == [CHUNKED]
    joined.write(b"first")
    assert transport.written == [CHUNKED, b"first"]


async def test_a_head_without_its_body_is_written_before_the_connection_closes() -> None:
    transport = WriteRecorder()
    joined = await join_writes(transport)
    joined.write(HEAD)
    joined.close()
    assert transport.written == [HEAD]
    assert transport.closed
