"""The examples of docs/reference/python-api.md, run from top to bottom as a reader would."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import podium

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"


def test_the_examples_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    assert len(examples) == 8
    exec("\n".join(examples), {})
    assert "2 calm done" in capsys.readouterr().out


def test_documented_run_fields_exist() -> None:
    table = PAGE.read_text("utf-8").partition("| `run.…` |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) > 10
    with podium.Podium([podium.ScriptedWorker("w", "yes")]) as client:
        run = client.ask("?")
    for name in names:
        path = f"steps[i]{name}" if name.startswith(".") else name
        eval(f"run.{path}", {"run": run, "i": 0})


def test_every_public_name_exists_and_none_is_hidden() -> None:
    exported = set(podium.__all__) - {"__version__"}
    assert all(getattr(podium, name) is not None for name in exported)
    public = {name for name in vars(podium) if not name.startswith("_")}
    modules = {name for name in public if type(vars(podium)[name]).__name__ == "module"}
    assert public - modules - {"Any", "TYPE_CHECKING"} == exported


def undocumented(function: object) -> set[str]:
    """The parameters of a public function or class that its docstring does not name."""
    try:
        parameters = set(inspect.signature(function).parameters)  # type: ignore[arg-type]
    except ValueError:  # an exception without a constructor of its own
        return set()
    described = inspect.getdoc(function) or ""
    return {
        name
        for name in parameters - {"self", "args", "kwargs"}
        if not re.search(rf"^\s.*\b{name}\b.*: |`{name}`", described, re.M)
    }


@pytest.mark.parametrize("name", sorted(set(podium.__all__) - {"Podium", "__version__"}))
def test_every_parameter_of_the_public_api_is_described(name: str) -> None:
    assert undocumented(getattr(podium, name)) == set()


def test_a_parameter_without_a_description_is_found() -> None:
    def ask(question: str, tier: str) -> None:
        """Ask.

        Args:
            question: The question.
        """

    assert undocumented(ask) == {"tier"}


@pytest.mark.parametrize("verdict", [True, False])
async def test_a_decorated_function_is_a_grader(verdict: bool) -> None:
    @podium.grader
    def grade(answer: str) -> bool:
        """Grade."""
        return answer == "right"

    @podium.grader
    async def grade_later(answer: str) -> bool:
        return answer == "right"

    answer = "right" if verdict else "wrong"
    assert await grade(answer) is await grade_later(answer) is verdict
    assert grade.__doc__ == "Grade."
