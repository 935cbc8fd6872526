"""The tables `[[guardrail]]`: what they mean, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from podium.client.assembly import build_guardrail
from podium.config.guardrails import GuardrailSettings, fingerprint
from podium.config.schema import ConfigFile
from podium.config.sources import load
from podium.core.errors import ConfigError
from podium.engine.guardrails import Grounding, GuardrailInput, Pass, Redaction

POOL = """
[[worker]]
name = "a"
provider = "scripted"

[[worker]]
name = "judge"
provider = "scripted"

[[worker]]
name = "nested"
provider = "podium"
"""


def read(tmp_path: Path, text: str, conductor: str = "") -> tuple[GuardrailSettings, ...]:
    file = tmp_path / "podium.toml"
    file.write_text(f'[conductor]\nkind = "router"\n{conductor}\n{text}\n{POOL}', "utf-8")
    return load(file).guardrails


def test_omitted_options_have_their_defaults(tmp_path: Path) -> None:
    redact, grounding, own = read(
        tmp_path,
        """
        [[guardrail]]
        kind = "redact"
        [[guardrail]]
        kind = "grounding"
        verifier = "judge"
        [[guardrail]]
        kind = "python"
        name = "mine"
        hook = "my_checks:look"
        stages = ["reply"]
        on_error = "pass"
        """,
    )
    assert (redact.name, redact.stages, redact.action) == (
        "redact",
        ("question", "reply", "answer"),
        "redact",
    )
    assert "ip" not in redact.kinds
    assert (grounding.stages, grounding.action) == (("answer",), "block")
    assert (own.name, own.stages, own.action, own.on_error) == ("mine", ("reply",), None, "pass")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('kind = "redacts"', "guardrail[0].kind"),
        ('kind = "redact"\ncolour = 1', "guardrail[0].colour"),
        ('kind = "redact"\nstages = ["step"]', "guardrail[0].stages"),
        ('kind = "redact"\nstages = []', "guardrail[0].stages"),
        ('kind = "redact"\nkinds = ["names"]', "guardrail[0].kinds"),
        ('kind = "redact"\nverifier = "judge"', 'has no effect with kind = "redact"'),
        ('kind = "redact"\naction = "replan"', "it is redact or block"),
        ('kind = "grounding"', "guardrail[0].verifier is missing"),
        ('kind = "grounding"\nverifier = "jugde"', "there is a, judge"),
        ('kind = "grounding"\nverifier = "nested"', "answers by itself"),
        ('kind = "grounding"\nverifier = "judge"\nstages = ["reply"]', 'of the "answer" alone'),
        ('kind = "grounding"\nverifier = "judge"\naction = "replan"', "raise conductor.rounds"),
        ('kind = "python"', "expected a function as module:function"),
        ('kind = "python"\nhook = "os.system"', "expected a function as module:function"),
        ('kind = "python"\nhook = "a:b"\naction = "block"', "the function decides"),
        ('kind = "redact"\n[[guardrail]]\nkind = "redact"', "two guardrails named 'redact'"),
    ],
)
def test_invalid_values_are_refused_with_their_path(
    tmp_path: Path, table: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, f"[[guardrail]]\n{table}")
    assert message in str(refused.value)


def test_another_plan_may_be_demanded_where_there_are_rounds(tmp_path: Path) -> None:
    table = '[[guardrail]]\nkind = "grounding"\nverifier = "judge"\naction = "replan"'
    (grounding,) = read(tmp_path, table, "rounds = 2")
    guardrail = build_guardrail(grounding)
    assert isinstance(guardrail.hook, Grounding)
    assert guardrail.hook.action == "replan"


def test_settings_become_guardrails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '[[guardrail]]\nkind = "redact"\nkinds = ["e-mail"]\naction = "block"\nrestore = true'
    guardrail = build_guardrail(read(tmp_path, table)[0])
    assert isinstance(guardrail.hook, Redaction)
    assert (guardrail.hook.kinds, guardrail.hook.action) == (("e-mail",), "block")
    (tmp_path / "my_podium_checks.py").write_text(
        "from podium.engine.guardrails import Pass\ndef look(checked): return Pass()\nother = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = GuardrailSettings(
        name="own", kind="python", stages=("answer",), hook="my_podium_checks:look"
    )
    hook = build_guardrail(own).hook
    assert callable(hook)
    checked = GuardrailInput(stage="answer", text="", run_id="", question="")
    assert hook(checked) == Pass()
    for wrong, why in (
        ("my_podium_checks:other", "is not a function"),
        ("not_there:x", "PYTHONPATH"),
    ):
        with pytest.raises(ConfigError, match=why):
            build_guardrail(
                GuardrailSettings(name="own", kind="python", stages=("answer",), hook=wrong)
            )
    sys.modules.pop("my_podium_checks")


def test_a_pool_file_adds_its_guardrails_or_replaces_those_of_the_file() -> None:
    ours = ConfigFile.model_validate({"guardrail": [{"kind": "redact"}]})
    pool = ConfigFile.model_validate({"guardrail": [{"kind": "python", "hook": "a:b"}]})
    assert [table.kind for table in ours.complete_from(pool).guardrail] == ["python", "redact"]
    assert [table.kind for table in ours.overlay(pool).guardrail] == ["python"]
    assert ours.overlay(ConfigFile.model_validate({})).guardrail == ours.guardrail


def test_the_fingerprint_shows_every_change() -> None:
    one = GuardrailSettings(name="x", kind="redact", stages=("answer",))
    other = GuardrailSettings(name="x", kind="redact", stages=("answer",), on_error="pass")
    assert fingerprint([one]) == fingerprint([one])
    assert len({fingerprint([]), fingerprint([one]), fingerprint([other])}) == 3
