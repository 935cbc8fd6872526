from __future__ import annotations

from dataclasses import replace

import pytest

from podium.server.access.keys import SESSION_SECONDS, Sessions, make_key, parse_session
from podium.server.api_error import ApiError
from podium.store.keys import Rules
from server.access.support import NOON, Clock, Server

KEY = make_key("Ada", Rules()).key


def test_a_session_is_known_again_until_it_ends() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock=clock)
    claim = parse_session(sessions.create(KEY))
    assert claim is not None
    assert claim.key_id == KEY.id
    assert sessions.is_valid(claim, KEY)
    clock.now = NOON + SESSION_SECONDS
    assert not sessions.is_valid(claim, KEY)


def test_a_session_is_good_in_every_process_that_has_the_secret_and_in_no_other() -> None:
    claim = parse_session(Sessions("one").create(KEY))
    assert claim is not None
    assert Sessions("one").is_valid(claim, KEY)
    assert not Sessions("another").is_valid(claim, KEY)
    assert not Sessions().is_valid(claim, KEY)


def test_nothing_of_a_session_can_be_changed() -> None:
    sessions = Sessions("secret")
    claim = parse_session(sessions.create(KEY))
    assert claim is not None
    other = make_key("Bob", Rules()).key
    assert not sessions.is_valid(claim._replace(ends=claim.ends + 1), KEY)
    assert not sessions.is_valid(claim._replace(key_id=other.id), other)
    assert not sessions.is_valid(claim, replace(KEY, digest=other.digest))


@pytest.mark.parametrize(
    "shown",
    ["", "pk_0_x", "ps_", "ps_1_2", "ps__2_x", "ps_1_x_y", "ps_1_²_y", "ps_1_2_" + "x" * 300],
)
def test_requests_without_a_session_claim_nothing(shown: str) -> None:
    assert parse_session(shown) is None


async def test_a_session_does_what_its_key_does_and_ends_with_it() -> None:
    server = Server()
    token = await server.token(Rules(scopes=frozenset({"ask"})))
    session = await server.access.sign_in(token)
    assert session is not None
    assert token not in session
    principal = await server.access.authenticate(session)
    assert principal.key_id == (await server.access.authenticate(token)).key_id
    assert principal.scopes == {"ask"}
    await server.keys.revoke(principal.key_id)
    server.clock.now += 6
    with pytest.raises(ApiError, match="revoked"):
        await server.access.authenticate(session)


async def test_a_session_cannot_be_exchanged_for_a_session() -> None:
    server = Server()
    session = await server.access.sign_in(await server.token())
    assert session is not None
    with pytest.raises(ApiError, match="invalid API key"):
        await server.access.sign_in(session)
    with pytest.raises(ApiError, match="sign in again"):
        await server.access.authenticate(session[:-1] + ("0" if session[-1] != "0" else "1"))
