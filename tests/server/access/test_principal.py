from __future__ import annotations

import pytest

from podium.server.access.policy import Principal
from podium.server.api_error import ApiError
from podium.store.keys import SCOPES, Scope


def principal(*scopes: Scope) -> Principal:
    return Principal(key_id="key_1", name="Ada", scopes=frozenset(scopes))


def test_a_scope_that_the_key_lacks_is_forbidden_by_name() -> None:
    principal("ask").require("ask")
    with pytest.raises(
        ApiError, match="scope 'plan' required: key 'Ada' has the scope ask;"
    ) as refused:
        principal("ask").require("plan")
    with pytest.raises(ApiError, match="'Ada' has the scopes ask, gateway;"):
        principal("gateway", "ask").require("plan")
    assert refused.value.status == 403


@pytest.mark.parametrize("scope", SCOPES)
def test_admin_may_do_everything(scope: Scope) -> None:
    assert principal("admin").has_scope(scope)


def test_only_admin_sees_what_others_asked() -> None:
    assert principal("runs:read").can_see("key_1")
    assert not principal("runs:read").can_see("key_2")
    assert not principal("runs:read").can_see("")
    assert principal("admin").can_see("key_2")


def test_a_tier_is_allowed_pinned_or_not() -> None:
    one = Principal(tiers=frozenset({"mini"}))
    assert one.can_use("podium-mini")
    assert one.can_use("podium-mini@0a1b")
    assert not one.can_use("podium-ultra@0a1b")
    assert not one.can_use("podium")
    assert one.can_use("gpt")


def test_a_worker_is_allowed_by_name_and_never_when_it_or_its_provider_is_excluded() -> None:
    one = Principal(workers=frozenset({"gpt", "claude"}), exclude=frozenset({"anthropic"}))
    assert one.can_use("gpt", "openai")
    assert not one.can_use("claude", "anthropic")
    assert not one.can_use("llama", "ollama")
    assert not Principal(exclude=frozenset({"gpt"})).can_use("gpt", "openai")


def test_a_model_that_is_not_allowed_is_forbidden_and_the_field_named() -> None:
    with pytest.raises(ApiError, match="'Ada' does not allow the model 'podium'") as refused:
        Principal(name="Ada", tiers=frozenset()).check_model("podium")
    assert (refused.value.status, refused.value.field) == (403, "model")


def test_keys_see_only_models_that_they_may_use() -> None:
    one = Principal(scopes=frozenset({"ask"}), tiers=frozenset({"mini"}))
    assert one.can_list("podium-mini")
    assert not one.can_list("podium-ultra")
    assert not one.can_list("gpt")
    other = Principal(scopes=frozenset({"gateway"}), exclude=frozenset({"anthropic"}))
    assert other.can_list("gpt", "openai")
    assert not other.can_list("claude", "anthropic")
    assert not other.can_list("podium")
