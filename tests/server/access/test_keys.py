from __future__ import annotations

import pytest

from podium.errors import UsageError
from podium.server.access.keys import digest_of, fits, make_key, read_token
from podium.store.keys import Rules

MADE = make_key("Ada", Rules())


def test_a_token_names_its_key_and_is_nowhere_in_it() -> None:
    shown = read_token(MADE.token)
    assert shown is not None
    assert shown.key_id == MADE.key.id
    assert MADE.token.startswith("pk_" + MADE.key.id.removeprefix("key_"))
    secret = MADE.token.split("_", 2)[2]
    assert len(secret) == 43
    assert secret not in repr(MADE.key)


def test_a_token_fits_its_own_key_and_no_other() -> None:
    other = make_key("Ada", Rules())
    shown = read_token(MADE.token)
    assert shown is not None
    assert fits(shown, MADE.key)
    assert not fits(shown, other.key)


def test_a_token_with_one_letter_changed_does_not_fit() -> None:
    last = "A" if MADE.token[-1] != "A" else "B"
    shown = read_token(MADE.token[:-1] + last)
    assert shown is not None
    assert shown.key_id == MADE.key.id
    assert not fits(shown, MADE.key)


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
def test_what_is_no_token_of_ours_is_known_without_a_lookup(token: str) -> None:
    assert read_token(token) is None


def test_the_digest_is_not_that_of_anybody_elses_system() -> None:
    from hashlib import blake2b, sha256

    token = MADE.token.encode()
    assert digest_of(MADE.token) == MADE.key.digest
    assert MADE.key.digest not in (
        sha256(token).hexdigest(),
        blake2b(token, digest_size=32).hexdigest(),
    )


@pytest.mark.parametrize("name", ["", "  ", "x" * 101])
def test_a_key_has_a_name_to_know_it_by(name: str) -> None:
    with pytest.raises(UsageError, match="the name of a key is"):
        make_key(name, Rules())
