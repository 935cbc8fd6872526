from __future__ import annotations

import pytest

from podium.server.access.policy import Principal
from podium.server.api_error import ApiError
from podium.store.keys import SCOPES, Scope


def visitor(*scopes: Scope) -> Principal:
    return Principal(key_id="key_1", name="Ada", scopes=frozenset(scopes))


def test_a_scope_that_the_key_lacks_is_forbidden_by_name() -> None:
    visitor("ask").require("ask")
    with pytest.raises(ApiError, match="'Ada' has the scope ask, .* the scope plan") as refused:
        visitor("ask").require("plan")
    with pytest.raises(ApiError, match="'Ada' has the scopes ask, gateway, and"):
        visitor("gateway", "ask").require("plan")
    assert refused.value.status == 403


@pytest.mark.parametrize("scope", SCOPES)
def test_admin_may_do_everything(scope: Scope) -> None:
    assert visitor("admin").may(scope)


def test_only_admin_sees_what_others_asked() -> None:
    assert visitor("runs:read").may_see("key_1")
    assert not visitor("runs:read").may_see("key_2")
    assert not visitor("runs:read").may_see("")
    assert visitor("admin").may_see("key_2")


def test_a_tier_is_allowed_pinned_or_not() -> None:
    one = Principal(tiers=frozenset({"mini"}))
    assert one.allows("podium-mini")
    assert one.allows("podium-mini@0a1b")
    assert not one.allows("podium-ultra@0a1b")
    assert not one.allows("podium")
    assert one.allows("gpt")


def test_a_worker_is_allowed_by_name_and_never_when_it_or_its_provider_is_excluded() -> None:
    one = Principal(workers=frozenset({"gpt", "claude"}), exclude=frozenset({"anthropic"}))
    assert one.allows("gpt", "openai")
    assert not one.allows("claude", "anthropic")
    assert not one.allows("llama", "ollama")
    assert not Principal(exclude=frozenset({"gpt"})).allows("gpt", "openai")


def test_a_model_that_is_not_allowed_is_forbidden_and_the_field_named() -> None:
    with pytest.raises(ApiError, match="'Ada' does not allow the model 'podium'") as refused:
        Principal(name="Ada", tiers=frozenset()).check_model("podium")
    assert (refused.value.status, refused.value.field) == (403, "model")


def test_what_a_key_may_ask_for_is_what_it_is_shown() -> None:
    one = Principal(scopes=frozenset({"ask"}), tiers=frozenset({"mini"}))
    assert one.lists("podium-mini")
    assert not one.lists("podium-ultra")
    assert not one.lists("gpt")
    other = Principal(scopes=frozenset({"gateway"}), exclude=frozenset({"anthropic"}))
    assert other.lists("gpt", "openai")
    assert not other.lists("claude", "anthropic")
    assert not other.lists("podium")
