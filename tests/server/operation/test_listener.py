from __future__ import annotations

import socket

import pytest

from podium.config import ServerSettings
from podium.errors import ConfigError
from podium.server.operation.listener import address_of, bound


def test_an_address_that_is_taken_is_ours_and_known() -> None:
    with bound(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        assert address_of(taken) == f"http://127.0.0.1:{port}"
        taken.listen()
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1 is taken.*--port"):
            bound(ServerSettings(port=port))


def test_an_address_of_the_newer_protocol_is_shown_in_brackets() -> None:
    try:
        taken = bound(ServerSettings(host="::1", port=0))
    except ConfigError:
        pytest.skip("this machine has no ::1")
    with taken:
        assert address_of(taken).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_this_machine_has_not_is_told(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"{host}.*(--host|choose another)"):
        bound(ServerSettings(host=host, port=0))


def test_a_port_that_is_not_for_ordinary_users_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, address: object, /) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(ConfigError, match="from 1024 on"):
        bound(ServerSettings(port=80))
