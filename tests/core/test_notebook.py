"""A run in a notebook."""

from __future__ import annotations

from xml.etree import ElementTree

from podium import FixedConductor, Podium, Price, ScriptedWorker, Step, Usage, Workflow

PLAN = Workflow(
    (Step("a", "one <b>"), Step("b", "two"), Step("a", "</title><script>x</script>", (0, 1)))
)


def test_a_run_is_shown_with_its_plan_what_its_steps_read_and_its_cost() -> None:
    price, usage = Price(input=1.0, output=2.0), Usage(input_tokens=100, output_tokens=50)
    workers = [
        ScriptedWorker("a", ["<i>left</i>", "& joined"], price=price, usage=usage),
        ScriptedWorker("b", "right", price=price, usage=usage),
    ]
    with Podium(workers, FixedConductor(PLAN)) as podium:
        shown = podium.ask("<script>why?</script>")._repr_html_()
    root = ElementTree.fromstring(shown)
    rows = [[cell.text or "" for cell in row] for row in root.iter("tr")]
    assert [row[1] for row in rows] == ["after", "", "", "0, 1"]
    assert rows[1] == ["0", "", "a", "one <b>", "<i>left</i>", "$0.0002"]
    assert "<script>" not in shown
    assert "<i>" not in shown
    text = " ".join(root.itertext())
    for part in ("<script>why?</script>", "& joined", "$0.0006", "450 tokens", "<i>left</i>"):
        assert part in text
