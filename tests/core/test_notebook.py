"""A run in a notebook."""

from __future__ import annotations

from xml.etree import ElementTree

from podium import FixedConductor, Podium, Price, ScriptedWorker, Step, Usage, Workflow

PLAN = Workflow(
    (Step("a", "one <b>"), Step("b", "two"), Step("a", "</title><script>x</script>", (0, 1)))
)


def test_a_run_is_shown_with_its_plan_its_graph_and_its_cost() -> None:
    price, usage = Price(input=1.0, output=2.0), Usage(input_tokens=100, output_tokens=50)
    workers = [
        ScriptedWorker("a", ["<i>left</i>", "& joined"], price=price, usage=usage),
        ScriptedWorker("b", "right", price=price, usage=usage),
    ]
    with Podium(workers, FixedConductor(PLAN)) as podium:
        shown = podium.ask("<script>why?</script>")._repr_html_()
    root = ElementTree.fromstring(shown)
    space = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{space}rect"))) == 3
    assert len(list(root.iter(f"{space}line"))) == 2
    assert "<script>" not in shown
    assert "<i>" not in shown
    text = " ".join(root.itertext())
    for part in ("<script>why?</script>", "& joined", "$0.0006", "450 tokens", "<i>left</i>"):
        assert part in text
