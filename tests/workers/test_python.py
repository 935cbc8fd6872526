"""The Python worker: which program it runs, what it replies, and what hostile programs meet."""

from __future__ import annotations

import re

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import ConfigError, RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, Usage, user
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Runner
from podium.workers import Endpoint, Http, ScriptedWorker, connect, sandbox
from podium.workers.python import (
    NO_OUTPUT,
    NO_PROGRAM,
    PASSED,
    PythonWorker,
    find_program,
    prepare_program,
)

PROFILE = WorkerProfile(name="python", provider="python")
FENCED = "Here it is:\n```python\nprint(6 * 7)\n```\nIt prints the answer."


def python(**limits: float) -> PythonWorker:
    return PythonWorker(PROFILE, Endpoint(options=limits), Http())


async def run(program: str, **limits: float) -> Reply:
    return await python(**limits).reply(Request((user(program),)))


def step(*replies: str, subtask: str = "Run it.") -> str:
    shown = [
        f'<subtask step="{number}">\nwrite\n</subtask>\n<reply step="{number}">\n{reply}\n</reply>'
        for number, reply in enumerate(replies, start=1)
    ]
    return "\n\n".join([*shown, subtask])


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (step(FENCED), "print(6 * 7)\n"),
        (step(FENCED, "```py\nx = 1\nx\n```"), "x = 1\nx\n"),
        (step(FENCED, subtask="Run this:\n```\nprint(1)\n```"), "print(1)\n"),
        (step("```bash\nls\n```\nand\n```python\nprint(2)\n```"), "print(2)\n"),
        (step("  ```python\n  print(3)\n  ```"), "print(3)\n"),
        (step("print(4)", "Tokyo"), "print(4)"),
        ("17 * 23", "17 * 23"),
        ("x = 2\nx ** 10", "x = 2\nx ** 10"),
        (step("391", subtask="Check the sum."), None),
        ("The answer is 42.", None),
        ("Tokyo", None),
        ("```js\nconsole.log(1)\n```", None),
        ("", None),
    ],
)
def test_the_last_program_that_the_step_brings_is_run(text: str, program: str | None) -> None:
    assert find_program(text) == program


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("print(6 * 7)", "42"),
        ("17 * 23", "391"),
        ("x = 5\nx * 2", "10"),
        ("'a'; 'b'", "b"),
        ("from __future__ import annotations\nprint(1)", "1"),
        ("def f():\n    return 3\nprint(f())", "3"),
        ("if __name__ == '__main__':\n    print('main')", "main"),
        ("import math\nprint(math.comb(5, 2)); math.pi > 3", "10\nTrue"),
    ],
)
async def test_the_reply_is_what_the_program_prints_and_its_last_value(
    program: str, output: str
) -> None:
    reply = await run(f"```python\n{program}\n```")
    assert (reply.text, reply.finish) == (output, "stop")
    assert reply.usage.total_tokens == 0


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("print('so far')\nraise ValueError('no')", "ValueError: no\nIt printed before:\nso far"),
        ("print(", "SyntaxError"),
        ("import sys\nsys.exit(3)", "exited with status 3"),
    ],
)
async def test_an_error_is_data_and_the_reply_says_that_it_is_one(program: str, error: str) -> None:
    reply = await run(f"```python\n{program}\n```")
    assert reply.text.startswith("The program failed: ")
    assert error in reply.text
    assert reply.finish == "error"


async def test_nothing_to_run_and_nothing_printed_are_errors_too() -> None:
    assert await run("Tokyo") == Reply(NO_PROGRAM, Usage(0, 0), "error", model="python")
    assert (await run("```\ndef f(): return 1\n```")).text == NO_OUTPUT


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("while True: pass", "exceeded the CPU time limit|timed out"),
        ("import time; time.sleep(60)", "timed out"),
        ("while True: print('flood')", "exceeded the output limit"),
        ("open('/etc/hosts', 'w')", "Read-only file system|Permission denied"),
        ("open('/root/.profile').read()", "No such file|Permission denied"),
        (
            "import socket; socket.create_connection(('1.1.1.1', 80), 1)",
            "unreachable|not permitted|Permission denied",
        ),
        ("x = 'a' * 10**10", "MemoryError"),
        ("import os\nwhile True: os.fork()", "BlockingIOError|processes|status|limit|timed out"),
    ],
)
async def test_hostile_programs_meet_the_limits_and_get_a_clear_error(
    program: str, error: str
) -> None:
    reply = await run(f"```python\n{program}\n```", cpu_seconds=1, wall_seconds=3.0)
    assert reply.finish == "error"
    assert re.search(error, reply.text), reply.text[:300]
    assert len(reply.text) < 10_000


@pytest.mark.parametrize(
    ("tests", "before"),
    [("assert double(2) == 4", ""), ("print('tried')\nassert double(3) == 6", "tried\n\n")],
)
async def test_code_whose_assertions_hold_is_itself_the_reply(tests: str, before: str) -> None:
    program = f"def double(x):\n    return 2 * x\n{tests}"
    reply = await run(f"Here it is:\n```python\n{program}\n```")
    assert reply.text == f"{before}{PASSED}\n\n```python\n{program}\n```"
    assert reply.finish == "stop"
    assert find_program(reply.text) == f"{program}\n", "a later step can run it again"


async def test_assertions_that_nothing_calls_say_nothing() -> None:
    tested = "def f(n):\n    return n\n\ndef test():\n    assert f(1) == 2"
    reply = await run(tested)
    assert (reply.text, reply.finish) == (NO_OUTPUT, "error")
    assert "AssertionError" in (await run(f"{tested}\n\ntest()")).text


async def test_code_whose_assertions_fail_is_a_program_that_failed() -> None:
    reply = await run("```python\ndef double(x):\n    return x\nassert double(2) == 4\n```")
    assert (reply.text, reply.finish) == ("The program failed: AssertionError:", "error")


async def test_a_long_output_keeps_its_start_and_its_end() -> None:
    reply = await run("```python\nfor i in range(9999): print(i)\n```")
    assert reply.text.startswith("0\n1\n")
    assert reply.text.endswith("9997\n9998")
    assert "characters left out]" in reply.text
    assert len(reply.text) < 8_100


def test_a_program_too_nested_to_be_read_is_a_syntax_error_or_runs() -> None:
    with pytest.raises((SyntaxError, RecursionError)):
        prepare_program("(" * 5000 + ")" * 5000)


async def test_programs_are_not_run_without_isolation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "_problem", None)
    monkeypatch.setattr(sandbox, "_DISABLED", ("mounts", "landlock"))
    monkeypatch.setattr(sandbox, "_warned", {"mounts", "landlock"})
    with pytest.raises(RequestRefused, match="cannot keep programs from its files"):
        await run("print(1)")
    monkeypatch.setattr(sandbox, "_problem", None)


def test_options_are_the_limits_of_the_sandbox() -> None:
    with pytest.raises(ConfigError, match=r"worker 'python': options: .*cpu"):
        python(cpu=1)
    with pytest.raises(ConfigError, match="must be more than 0"):
        python(cpu_seconds=0)
    assert connect(PROFILE, Endpoint(options={"cpu_seconds": 2}), Http()).profile is PROFILE


async def test_in_a_plan_it_runs_what_the_step_before_wrote_and_the_next_reads_its_output() -> None:
    writer, reader = ScriptedWorker("writer", FENCED), ScriptedWorker("reader", "It is 42.")
    workflow = Workflow(
        (
            Step("writer", "Write a program."),
            Step("python", "Run it.", (0,)),
            Step("reader", "Say it.", (1,)),
        )
    )
    question = "What is 6 * 7? Not this:\n```python\nprint(0)\n```"
    crew = (writer, python(), reader)
    run = await Runner(FixedConductor(workflow), crew).run(question)
    assert [step.reply for step in run.steps] == [FENCED, "42", "It is 42."]
    assert "print(0)" not in run.steps[1].prompt, "the question is no program to run"
    assert "42" in run.steps[2].prompt


async def test_a_program_that_fails_does_not_end_the_run() -> None:
    workflow = Workflow((Step("python", "```\n1 / 0\n```"), Step("reader", "Explain.", (0,))))
    crew = (python(), ScriptedWorker("reader", "It divided by zero."))
    run = await Runner(FixedConductor(workflow), crew).run("Why?")
    assert (run.status, run.answer) == ("answered", "It divided by zero.")
    assert (run.steps[0].status, run.steps[0].finish) == ("done", "error")
