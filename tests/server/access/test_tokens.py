from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

from podium.core.errors import UsageError
from podium.server.access.keys import digest_of, make_key, matches, parse_token
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore

MADE = make_key("Ada", Rules())


def test_a_token_names_its_key_and_the_key_does_not_contain_it() -> None:
    shown = parse_token(MADE.token)
    assert shown is not None
    assert shown.key_id == MADE.key.id
    assert MADE.token.startswith("pk_" + MADE.key.id.removeprefix("key_"))
    secret = MADE.token.split("_", 2)[2]
    assert len(secret) == 43
    assert secret not in repr(MADE.key)


def test_a_token_fits_its_own_key_and_no_other() -> None:
    other = make_key("Ada", Rules())
    shown = parse_token(MADE.token)
    assert shown is not None
    assert matches(shown, MADE.key)
    assert not matches(shown, other.key)


def test_a_token_with_one_letter_changed_does_not_fit() -> None:
    last = "A" if MADE.token[-1] != "A" else "B"
    shown = parse_token(MADE.token[:-1] + last)
    assert shown is not None
    assert shown.key_id == MADE.key.id
    assert not matches(shown, MADE.key)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "pk",
        "pk_",
        "pk__x",
        "pk_1",
        "pk_1_",
        "sk_1_x",
        "sk-proj-1",
        "pk_1_ä",
        "pk_1_" + "x" * 300,
    ],
)
def test_foreign_tokens_are_refused_without_a_lookup(token: str) -> None:
    assert parse_token(token) is None


def test_the_digest_depends_on_this_system() -> None:
    from hashlib import blake2b, sha256

    token = MADE.token.encode()
    assert digest_of(MADE.token) == MADE.key.digest
    assert MADE.key.digest not in (
        sha256(token).hexdigest(),
        blake2b(token, digest_size=32).hexdigest(),
    )


@pytest.mark.parametrize("name", ["", "  ", "x" * 101])
def test_a_key_has_a_name_to_know_it_by(name: str) -> None:
    with pytest.raises(UsageError, match="invalid key name"):
        make_key(name, Rules())


def test_nothing_but_a_comparison_in_constant_time_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, str]] = []

    def same(one: str, other: str) -> bool:
        compared.append((one, other))
        return True

    monkeypatch.setattr(hmac, "compare_digest", same)
    other = make_key("Ada", Rules())
    shown = parse_token(MADE.token)
    assert shown is not None
    assert matches(shown, other.key)
    assert compared == [(MADE.key.digest, other.key.digest)]


def test_a_secret_is_256_random_bits_that_no_two_keys_share() -> None:
    secrets = [make_key("Ada", Rules()).token.split("_", 2)[2] for _ in range(200)]
    decoded = [urlsafe_b64decode(f"{secret}=") for secret in secrets]
    assert {len(item) for item in decoded} == {32}
    assert len(set(decoded)) == 200
    set_bits = sum(byte.bit_count() for item in decoded for byte in item)
    assert 0.48 < set_bits / (200 * 256) < 0.52


def everything_in(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def test_a_store_has_nothing_from_which_a_token_could_be_made(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    await store.keys.add(MADE.key)
    await store.close()
    written = everything_in(tmp_path)
    assert MADE.key.digest.encode() in written
    assert MADE.token.split("_", 2)[2].encode() not in written
