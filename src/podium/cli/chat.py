"""`podium chat`: a conversation. Each question is a run that knows the turns before it."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import typer

from podium.cli import options
from podium.cli.formatting import counted, money, one_line, plan_line, step_line, tokens_of
from podium.cli.output import complain, say
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice, check_quality_bias
from podium.cli.showing import deliver, onlooker
from podium.client.runtime import RunOptions
from podium.core.errors import PodiumError
from podium.core.request import Message, assistant, user
from podium.core.run import Run, total_cost, total_usage

with suppress(ImportError):  # not everywhere
    import readline  # noqa: F401 - gives `input` line editing and a memory

app = typer.Typer(rich_markup_mode=None, add_completion=False)

PROMPT: Final = "you> "
COMMANDS: Final = "/plan shows the last plan, /cost what was spent, /quit leaves"


@app.command()
def chat(
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    tier: options.TierOption = None,
    max_steps: options.MaxSteps = None,
    rounds: options.Rounds = None,
    quality_bias: options.QualityBias = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    no_store: options.NoStore = False,
) -> None:
    """Talk with the pool, turn by turn.

    Budgets hold for each question. /plan shows the last plan, /cost what the conversation has
    cost so far, /quit leaves, as does the end of input. Ctrl-C stops an answer, and at the
    prompt it leaves.
    """
    options.standard_input()  # where there is none, nothing needs to be fetched or opened
    choice = Choice(
        pool=pool,
        config=config,
        conductor=conductor,
        exclude=frozenset(exclude or ()),
        offline=offline,
    )
    caps = Caps(
        usd=budget_usd,
        calls=budget_calls,
        seconds=budget_seconds,
        tokens=budget_tokens,
        allow_unpriced=allow_unpriced,
    )
    heeded = partial(check_quality_bias, tier=tier, quality_bias=quality_bias)
    with Session(choice, keep=not no_store, check=heeded) as session:
        wishes = options.wishes(
            caps.over(session.settings.budget), tier, max_steps, rounds, quality_bias
        )
        _Conversation(session, wishes).hold()


@dataclass(slots=True)
class _Conversation:
    session: Session
    wishes: RunOptions
    history: tuple[Message, ...] = ()
    runs: list[Run] = field(default_factory=list)

    def hold(self) -> None:
        """Ask and answer until somebody leaves."""
        if sys.stdin.isatty():
            say(COMMANDS)
        while (line := _next_line()) is not None:
            match line.strip():
                case "":
                    continue
                case "/quit":
                    return
                case "/plan":
                    self._say_plan()
                case "/cost":
                    self._say_cost()
                case other if other.startswith("/"):
                    complain(f"there is no {other}: {COMMANDS}")
                case question:
                    self._answer(question)

    def _answer(self, question: str) -> None:
        try:
            run = self.session.perform(
                lambda podium, watched: podium.ask(question, **watched),
                onlooker(silent=False),
                self._wishes(),
            )
        except KeyboardInterrupt:
            complain("interrupted")
            return
        except PodiumError as error:
            complain(str(error))
            return
        self.runs.append(run)
        deliver(run, self.session.resume(run), json=False, quiet=False)
        if run.answer is not None and run.status != "interrupted":
            self.history += (user(question), assistant(run.answer))

    def _wishes(self) -> RunOptions:
        wishes = self.wishes.copy()
        wishes["history"] = self.history
        return wishes

    def _say_plan(self) -> None:
        if not self.runs:
            complain("there is no plan yet; ask something first")
            return
        run = self.runs[-1]
        for round_ in run.rounds:
            say(one_line(plan_line(run, round_)))
            for index, step in enumerate(round_.workflow.steps if round_.workflow else ()):
                say(f"  {one_line(step_line(index, step))}")

    def _say_cost(self) -> None:
        calls = [call for run in self.runs for call in run.calls]
        used = f"{tokens_of(total_usage(iter(calls)))}, {money(total_cost(iter(calls)))}"
        say(f"{counted(len(self.runs), 'question')}, {counted(len(calls), 'call')}, {used}")


def _next_line() -> str | None:
    """The next line that was typed, or None at the end of the conversation."""
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            say()
        return None
    except UnicodeDecodeError:
        complain("that line is not UTF-8 text; it was passed over")
        return ""
