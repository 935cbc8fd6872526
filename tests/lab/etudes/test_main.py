from __future__ import annotations

import pytest

from podium_lab.etudes.__main__ import main


def test_a_sample_shows_questions_answers_and_plans_of_every_shape(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--sample", "2", "--seed", "3"])
    shown = capsys.readouterr().out
    assert "── one\n" in shown
    assert "── chains-join\n" in shown
    assert "chain-5" not in shown
    main(["--sample", "2", "--seed", "3"])
    assert capsys.readouterr().out == shown


def test_test_only_shapes_are_shown_for_the_test_split(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--sample", "1", "--split", "test"])
    assert "── chain-5\n" in capsys.readouterr().out
