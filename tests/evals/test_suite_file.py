from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.evals.run import SuiteFile, override, suite_file_for


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_paths_are_as_seen_from_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.toml", 'suite = "tasks.jsonl"\npool = "../pool.toml"\n')
    read = suite_file_for(str(file))
    assert read.suite == str(tmp_path / "tasks.jsonl")
    assert read.pool == str(tmp_path / "../pool.toml")
    named = written(tmp_path / "named.toml", 'suite = "gsm8k:train"\n')
    assert suite_file_for(str(named)).suite == "gsm8k:train"


def test_strategies_that_are_in_files_are_as_seen_from_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path / "mine.toml",
        'suite = "etudes"\nconductor = "evolved:best"\n'
        'strategies = ["moa", "single:a.py", "router:r.json", "evolved:best", "m.py:answer"]\n',
    )
    assert suite_file_for(str(file)).strategies == (
        "moa",
        "single:a.py",
        f"router:{tmp_path}/r.json",
        f"evolved:{tmp_path}/best",
        f"{tmp_path}/m.py:answer",
    )
    assert suite_file_for(str(file)).conductor == f"evolved:{tmp_path}/best"
    for plain in ("rules", "ann", "model"):
        named = written(tmp_path / "named.toml", f'suite = "etudes"\nconductor = "{plain}"\n')
        assert suite_file_for(str(named)).conductor == plain


def test_a_suite_by_its_name_is_a_file_that_says_nothing_else() -> None:
    assert suite_file_for("etudes") == SuiteFile(suite="etudes")


def test_command_line_options_override_the_file() -> None:
    file = SuiteFile(suite="etudes", seed=7, limit=9, pool="a.toml", judge="ann", oracle=True)
    assert override(file, seed=0, pool=Path("b.toml"), strategies=("moa",)) == SuiteFile(
        suite="etudes",
        seed=0,
        limit=9,
        pool="b.toml",
        judge="ann",
        oracle=True,
        strategies=("moa",),
    )
    assert override(file, limit=None, judge="", oracle=False) == file


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('suite = "etudes"\nlimt = 3', "unknown key limt; did you mean 'limit'?"),
        ("limit = 3", "suite is missing, and it is required"),
        ('suite = "etudes"\nlimit = "3"', "limit: expected a whole number, got the text '3'"),
        ('suite = "etudes"\nlimit = 0', "limit: expected more than 0, got 0"),
        ('suite = "etudes"\nstrategies = []', "strategies: expected"),
        ("suite = ", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_reported_with_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path / "mine.toml", text)
    with pytest.raises(ConfigError) as result:
        suite_file_for(str(file))
    assert complaint in str(result.value)
    assert str(result.value).startswith(str(file))


def test_a_file_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.toml: there is no such file"):
        suite_file_for(str(tmp_path / "none.toml"))
