"""Guardrails as the engine meets them: somebody who looks at what the workers of one round say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium.check import Check
from podium.guardrails.base import Checked, Source
from podium.guardrails.guard import Guard, Keep
from podium.run import Round, StepRecord, place_of


class Inspector:
    """Looks at the replies of one round. `answers` says whether final ones are the run's answer,
    which those of a nested run are not. `tell` hears of all that is done, as it happens."""

    def __init__(
        self,
        guard: Guard,
        run_id: str,
        question: str,
        round_: int,
        previous: Sequence[Round],
        *,
        answers: bool,
        tell: Callable[[Check], None],
    ) -> None:
        self._guard = guard
        self._run_id = run_id
        self._question = question
        self._round = round_
        self._previous = previous
        self._tell = tell
        self.answers = answers and guard.looks_at("answer")

    async def reply(self, text: str, step: int, worker: str, keep: Keep) -> str:
        """A worker's reply, or what it calls a tool with."""
        checked = Checked(
            place="reply",
            text=text,
            run_id=self._run_id,
            question=self._question,
            step=step,
            worker=worker,
        )
        return await self._guard.look(checked, self._both(keep), self._round)

    async def answer(
        self,
        text: str,
        step: int | None,
        worker: str,
        others: Sequence[StepRecord],
        keep: Keep,
    ) -> str:
        """The final reply, or what else is to be the answer."""
        checked = Checked(
            place="answer",
            text=text,
            run_id=self._run_id,
            question=self._question,
            step=step,
            worker=worker,
            sources=self._sources(others),
        )
        return await self._guard.look(checked, self._both(keep), self._round)

    def _both(self, keep: Keep) -> Keep:
        def kept(check: Check) -> None:
            keep(check)
            self._tell(check)

        return kept

    def _sources(self, others: Sequence[StepRecord]) -> tuple[Source, ...]:
        """What the answer may have been made from: this round's replies, and those before."""
        earlier = [
            Source(place_of(step, round_), step.subtask, step.reply)
            for round_ in self._previous
            for step in round_.steps
            if step.status == "done"
        ]
        now = [
            Source(str(step.index), step.subtask, step.reply)
            for step in others
            if step.status == "done"
        ]
        return (*earlier, *now)
