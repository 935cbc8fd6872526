"""Conversations of the page Chat: kept for one key, searched, shared and revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx

from podium.server.access.keys import make_key
from podium.store.keys import Rules
from support.site import Site, site_over

ID: Final = f"chat_{'a1' * 16}"
CHAT: Final[dict[str, Any]] = {
    "title": "Primes",
    "turns": [{"question": "Is 91 a prime?", "versions": [{"text": "No: 7 times 13, 100%."}]}],
    "settings": {"model": "podium"},
}


def client_of(site: Site, token: str = "") -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=f"{site.address}/v1/chats", headers=headers)


async def found(client: httpx.AsyncClient, text: str) -> list[str]:
    listed = (await client.get(f"{client.base_url}".rstrip("/"), params={"text": text})).json()
    return [chat["id"] for chat in listed["data"]]


async def other_key(site: Site) -> str:
    made = make_key("Bob", Rules())
    await site.store.keys.add(made.key)
    return made.token


async def test_a_conversation_is_kept_replaced_and_deleted(tmp_path: Path) -> None:
    async with site_over(tmp_path) as site, client_of(site) as client:
        assert (await client.put(f"/{ID}", json=CHAT)).status_code == 204
        kept = (await client.get(f"/{ID}")).json()
        assert {name: kept[name] for name in CHAT} == CHAT
        assert (kept["id"], kept["share_token"], kept["object"]) == (ID, None, "chat")
        await client.put(f"/{ID}", json=CHAT | {"title": "Factors"})
        again = (await client.get(f"/{ID}")).json()
        assert (again["title"], again["created_at"]) == ("Factors", kept["created_at"])
        assert (await client.delete(f"/{ID}")).status_code == 204
        assert (await client.get(f"/{ID}")).status_code == 404
        assert (await client.delete(f"/{ID}")).status_code == 404


async def test_search_reads_titles_questions_and_answers_and_no_wildcards(tmp_path: Path) -> None:
    async with site_over(tmp_path) as site, client_of(site) as client:
        await client.put(f"/{ID}", json=CHAT)
        for text in ("", "PRIMES", "91 prime", "13", "100%"):
            assert await found(client, text) == [ID], text
        for text in ("92", "91 absent", "%7", "_"):
            assert await found(client, text) == [], text


async def test_another_key_can_neither_read_nor_change_nor_share_it(tmp_path: Path) -> None:
    async with site_over(tmp_path, keys=True) as site:
        bob = await other_key(site)
        async with client_of(site, site.token) as ada, client_of(site, bob) as other:
            await ada.put(f"/{ID}", json=CHAT)
            assert await found(other, "") == []
            assert (await other.get(f"/{ID}")).status_code == 404
            assert (await other.put(f"/{ID}", json=CHAT | {"title": "x"})).status_code == 404
            assert (await other.post(f"/{ID}/share")).status_code == 404
            assert (await other.delete(f"/{ID}")).status_code == 404
            kept = (await ada.get(f"/{ID}")).json()
            assert (kept["title"], kept["share_token"]) == ("Primes", None)


async def test_a_link_takes_some_key_and_ends_when_the_owner_revokes_it(tmp_path: Path) -> None:
    async with site_over(tmp_path, keys=True) as site:
        bob = await other_key(site)
        async with client_of(site, site.token) as ada, client_of(site, bob) as other:
            await ada.put(f"/{ID}", json=CHAT)
            token = (await ada.post(f"/{ID}/share")).json()["share_token"]
            read = (await other.get(f"/shared/{token}")).json()
            assert (read["turns"], read["id"]) == (CHAT["turns"], None)
            async with client_of(site) as stranger:
                assert (await stranger.get(f"/shared/{token}")).status_code == 401
            await ada.put(f"/{ID}", json=CHAT | {"title": "Still shared"})
            assert (await other.get(f"/shared/{token}")).json()["title"] == "Still shared"
            assert (await ada.delete(f"/{ID}/share")).json()["share_token"] is None
            assert (await other.get(f"/shared/{token}")).status_code == 404


async def test_invalid_conversations_are_refused_in_one_line(tmp_path: Path) -> None:
    async with site_over(tmp_path) as site, client_of(site) as client:
        for id_, body, words in (
            ("chat_1", CHAT, "32 hexadecimal digits"),
            (ID, {"turns": []}, "title is required"),
            (ID, CHAT | {"turns": [1]}, "turns.0: expected an object"),
            (ID, CHAT | {"turns": [{}] * 501}, "500 items"),
            (ID, CHAT | {"share_token": "mine"}, "unexpected option 'share_token'"),
        ):
            refused = await client.put(f"/{id_}", json=body)
            assert refused.status_code == 400
            assert words in refused.json()["error"]["message"]
        large = CHAT | {"settings": {"system": "x" * 1_100_000}}
        refused = await client.put(f"/{ID}", json=large)
        assert refused.status_code == 413
        assert "the limit is 1 MB" in refused.json()["error"]["message"]
