"""The grader that is a model: it reads the question, what is wanted and the answer, and decides.

Its verdict is an opinion. A task that is graded so names its judge (`Task.judge`), and whatever
is reported of it says so. The judge costs money and time of its own; whoever hands it over
decides whether its replies are kept and counted. A judge that fails, or that ends without a
verdict, has not graded: that is an error of the judge, and no wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from podium.core.errors import BadReply, ConfigError
from podium.core.request import Request, user
from podium.core.worker import Worker
from podium.tasks.answers import LONGEST_REPLY_TO_JUDGE, final_answer
from podium.tasks.wording import prompt

JUDGE: Final = "judge"
"""The name of the grader."""

_VERDICT: Final = re.compile(r"<verdict>\s*(right|wrong)\s*</verdict>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Judge:
    """What the worker thinks of the answer, by the reference, by the rubric, or by both."""

    question: str
    worker: Worker
    answer: str = ""
    rubric: str = ""
    tagged: bool = False

    def __post_init__(self) -> None:
        if not self.answer.strip() and not self.rubric.strip():
            raise ConfigError(
                "the answer is missing: a judge needs an answer to judge by, or a `rubric`"
            )

    async def __call__(self, answer: str) -> bool:
        """The judge's verdict; what has no answer in it is wrong without asking."""
        given = final_answer(answer, tagged=self.tagged)
        if not given or len(given) > LONGEST_REPLY_TO_JUDGE:
            return False
        right = "\n\n".join(filter(None, (self.answer.strip(), self.rubric.strip())))
        asked = prompt("judge", question=self.question, right=right, given=_unmarked(given))
        reply = await self.worker.reply(Request((user(asked),), temperature=0.0))
        verdicts = _VERDICT.findall(reply.text)
        if not verdicts:
            raise BadReply(
                f"the judge {self.worker.profile.name} gave no verdict: expected "
                f"<verdict>right</verdict> or <verdict>wrong</verdict> in its reply"
            )
        return bool(verdicts[-1].lower() == "right")


def _unmarked(given: str) -> str:
    """The answer without marks by which it could pass for something else."""
    return re.sub(r"</?\s*(?:given|right|question|verdict)\s*>", "", given, flags=re.IGNORECASE)
