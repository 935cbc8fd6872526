"""`podium.rerun`: a stored run is run again, and nothing that is kept is asked or charged twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import Unavailable
from podium.core.request import Price, Request
from podium.core.workflow import Step, Workflow
from podium.server.access import AccessPolicy, Principal
from podium.server.dialects.chat import CHAT
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.serving import PLAIN, Served, application, serving

PLAN = Workflow((Step("ada", "Draft."), Step("ben", "Mend it.", (0,))))
PRICE = Price(input=1.0, output=2.0)


class Counting:
    """Workers that count their calls; ben fails as long as `is_away`."""

    def __init__(self, *names: str) -> None:
        self.calls = dict.fromkeys(names or ("ada", "ben"), 0)
        self.is_away = False

    def worker(self, name: str) -> ScriptedWorker:
        def script(request: Request) -> str | Unavailable:
            self.calls[name] += 1
            if name == "ben" and self.is_away:
                return Unavailable("overloaded")
            return f"{name} {self.calls[name]}"

        return ScriptedWorker(name, script, price=PRICE)

    def serving(self, store: Any, access: AccessPolicy | None = None) -> Any:
        workers = [self.worker(name) for name in self.calls]
        return application(
            workers,
            conductor=FixedConductor(PLAN),
            store=store,
            access=access,
            dialects={PLAIN: CHAT},
        )


async def asked(served: Served, key: str = "a", **podium: Any) -> Any:
    body = {
        "model": "podium-ultra",
        "messages": [{"role": "user", "content": "Why?"}],
        **({"podium": podium} if podium else {}),
    }
    headers = {"authorization": f"bearer {key}"}
    return await served.client.post(PLAIN, json=body, headers=headers)


async def test_a_failed_run_is_run_again_without_asking_for_what_is_done(tmp_path: Path) -> None:
    counting = Counting()
    counting.is_away = True
    async with serving(counting.serving(await open_store(tmp_path / "runs.db"))) as served:
        first = (await asked(served)).headers["x-podium-run"]
        failed = await served.service.store.load(first)
        assert failed.status != "answered"
        counting.is_away = False
        before = counting.calls["ben"]
        rerun = await asked(served, rerun={"run": first})
        assert rerun.status_code == 200, rerun.text
        run = await served.service.store.load(rerun.headers["x-podium-run"])
        assert (run.id != first, run.status, run.question) == (True, "answered", "Why?")
        assert counting.calls == {"ada": 1, "ben": before + 1}
        [call] = run.calls
        assert (call.worker, run.cost_usd) == ("ben", call.cost_usd)
        assert (await served.service.store.load(first)) == failed


@pytest.mark.parametrize(("step", "calls"), [(0, {"ada": 2, "ben": 2}), (1, {"ada": 1, "ben": 2})])
async def test_an_answered_run_is_run_again_from_a_step(
    step: int, calls: dict[str, int], tmp_path: Path
) -> None:
    counting = Counting()
    async with serving(counting.serving(await open_store(tmp_path / "runs.db"))) as served:
        first = (await asked(served)).headers["x-podium-run"]
        rerun = await asked(served, rerun={"run": first, "round": 0, "step": step})
        run = await served.service.store.load(rerun.headers["x-podium-run"])
        assert (run.status, run.answer, counting.calls) == ("answered", "ben 2", calls)


@pytest.mark.parametrize(
    ("rerun", "status", "words"),
    [
        ({"run": "run_0000000000000000"}, 404, "run not found"),
        ({"run": "THE_RUN", "round": 0, "step": 2}, 400, "has no step 2 in round 0"),
        ({"run": "THE_RUN", "round": 7}, 400, "has no step 0 in round 7"),
        ({"round": 0}, 400, "podium.rerun.run"),
    ],
)
async def test_runs_that_cannot_be_repeated_are_refused(
    rerun: dict[str, Any], status: int, words: str, tmp_path: Path
) -> None:
    async with serving(Counting().serving(await open_store(tmp_path / "runs.db"))) as served:
        run_id = (await asked(served)).headers["x-podium-run"]
        response = await asked(
            served, rerun={k: run_id if v == "THE_RUN" else v for k, v in rerun.items()}
        )
        assert response.status_code == status
        assert words in response.text


async def test_a_rerun_excludes_and_costs_at_most_what_its_request_says(tmp_path: Path) -> None:
    counting = Counting("ada", "ben", "cid")
    counting.is_away = True
    async with serving(counting.serving(await open_store(tmp_path / "runs.db"))) as served:
        first = (await asked(served)).headers["x-podium-run"]
        counting.is_away = False
        rerun = await asked(served, rerun={"run": first}, exclude=["cid"], budget={"calls": 7})
        assert rerun.status_code == 200, rerun.text
        run = await served.service.store.load(rerun.headers["x-podium-run"])
        assert (run.exclude, run.pool.names) == (("cid",), ("ada", "ben"))
        assert run.budget.calls == 7
        refused = await asked(served, rerun={"run": first}, exclude=["ben"])
        assert (refused.status_code, "planned steps for ben" in refused.text) == (400, True)


@pytest.mark.parametrize(
    "fixed", [{"max_steps": 2}, {"rounds": 2}, {"workflow": {"steps": []}}, {"quality_bias": 0.5}]
)
async def test_options_that_a_stored_run_fixes_are_refused(
    fixed: dict[str, Any], tmp_path: Path
) -> None:
    async with serving(Counting().serving(await open_store(tmp_path / "runs.db"))) as served:
        first = (await asked(served)).headers["x-podium-run"]
        refused = await asked(served, rerun={"run": first}, **fixed)
        assert refused.status_code == 400
        assert f"cannot be combined with podium.{next(iter(fixed))}" in refused.text


class ByToken(AccessPolicy):
    """Accepts any token; only `a` may bring a workflow."""

    async def authenticate(self, token: str | None, address: str = "") -> Principal:
        scopes = {"ask", "runs:read", *({"workflow"} if token == "a" else ())}
        return Principal(key_id=f"key_{token}", name=token or "", scopes=frozenset(scopes))


async def test_a_key_reruns_its_own_runs_only_and_needs_the_scope_workflow(
    tmp_path: Path,
) -> None:
    store = await open_store(tmp_path / "runs.db")
    async with serving(Counting().serving(store, ByToken())) as served:
        runs = {key: (await asked(served, key)).headers["x-podium-run"] for key in "ab"}
        assert (await asked(served, rerun={"run": runs["a"]}, key="b")).status_code == 404
        refused = await asked(served, rerun={"run": runs["b"]}, key="b")
        assert (refused.status_code, "workflow" in refused.text) == (403, True)
        own = await asked(served, rerun={"run": runs["a"], "step": 0}, key="a")
        assert own.status_code == 200, own.text
        assert (await served.service.store.load(own.headers["x-podium-run"])).owner == "key_a"
