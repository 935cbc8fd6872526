"""Calls that a strategy makes itself, kept as a run like any other.

Baselines such as voting are no workflows: they decide for themselves what a worker reads, and
which answer counts. Their calls still go through the engine's gates, retries and budget, and
what they did is a run, so that tables count everybody's tokens alike.
"""

from __future__ import annotations

import asyncio

from podium.budget import Ledger
from podium.engine import Calls
from podium.errors import BudgetExhausted, PodiumError
from podium.evals.case import Case
from podium.evals.stage import Stage
from podium.request import Reply, Request
from podium.run import Round, Run, StepRecord, new_run_id, timestamp
from podium.workflow import Step, Workflow


class Transcript:
    """One task being answered by calls of a strategy's own."""

    def __init__(self, strategy: str, case: Case, stage: Stage) -> None:
        self._strategy = strategy
        self._case = case
        self._stage = stage
        self._created_at = timestamp()
        self._ledger = Ledger(stage.options.budget)
        stage.board.bind()
        self._started = stage.board.clock()
        self._planned: list[Step] = []
        self._records: dict[int, StepRecord] = {}

    async def ask(
        self, worker: str, request: Request, subtask: str, reads: tuple[int, ...] = ()
    ) -> str | None:
        """What the worker replies, or None where it fails or the budget is spent.

        `subtask` says in a line what the call is for, `reads` which earlier calls' replies are
        part of the request: for whoever reads the run.
        """
        index = len(self._planned)
        self._planned.append(Step(worker, subtask, reads))
        calls = Calls(self._stage.board, self._ledger, self._started)
        began = self._elapsed_ms
        try:
            async with asyncio.timeout(self._ledger.seconds_left):
                reply = await calls(self._stage.workers[worker], request)
        except TimeoutError:
            spent = BudgetExhausted("seconds", self._ledger.budget.seconds or 0.0)
            self._note(index, calls, request, began, spent)
            return None
        except PodiumError as error:
            self._note(index, calls, request, began, error)
            return None
        self._note(index, calls, request, began, reply)
        return reply.text

    def run(self, answer: str | None) -> Run:
        """Everything that was done, and the answer that came of it."""
        records = tuple(record for _, record in sorted(self._records.items()))
        failed = [record.error for record in records if record.error is not None]
        return Run(
            id=new_run_id(),
            question=self._case.task.question,
            status="failed" if answer is None else "answered",
            pool=self._case.pool,
            conductor=self._strategy,
            created_at=self._created_at,
            budget=self._stage.options.budget,
            rounds=(Round(0, Workflow(tuple(self._planned)), records),),
            answer=answer,
            error=failed[0] if failed else None,
            spent=self._ledger.spent,
        )

    @property
    def _elapsed_ms(self) -> float:
        return (self._stage.board.clock() - self._started) * 1000

    def _note(
        self, index: int, calls: Calls, request: Request, began: float, end: Reply | PodiumError
    ) -> None:
        planned = self._planned[index]
        done = isinstance(end, Reply)
        self._records[index] = StepRecord(
            round=0,
            index=index,
            worker=planned.worker,
            subtask=planned.subtask,
            access=planned.access,
            status="done" if done else "failed",
            reply=end.text if isinstance(end, Reply) else "",
            error=None if done else str(end),
            started_ms=began,
            finished_ms=self._elapsed_ms,
            attempts=tuple(calls.attempts),
            prompt=request.text,
            answered_by=planned.worker if done else "",
        )
