from __future__ import annotations

from collections.abc import Collection

import pytest

from podium.core.errors import RequestRefused, UsageError
from podium.core.pool import (
    CONDUCTOR_PROVIDER,
    Capability,
    Pool,
    WorkerProfile,
    answer_capabilities,
    check_demands,
    check_response_options,
    fit_workflow,
    sole_worker_capabilities,
)
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Price, ResponseOptions, Tool
from podium.core.workflow import Step, Workflow

LOOK = Tool("look", "", {"type": "object"})
PICTURE = (Image(url="https://example.org/a.png"),)
JSON = ResponseOptions(schema={"type": "object"})


def worker(
    name: str,
    *can: Capability,
    fallback: str | None = None,
    dollars: float = 1.0,
    provider: str = "",
) -> WorkerProfile:
    return WorkerProfile(
        name=name,
        capabilities=frozenset(can),
        fallback=fallback,
        price=Price(input=1, output=dollars),
        provider=provider,
    )


def chain(*names: str) -> Workflow:
    return Workflow(tuple(Step(name, "x", tuple(range(i))) for i, name in enumerate(names)))


@pytest.mark.parametrize(
    ("response_options", "needs"),
    [
        (DEFAULT_RESPONSE_OPTIONS, ()),
        (ResponseOptions(max_tokens=9, stop=("END",), effort="high"), ()),
        (JSON, ("json",)),
        (ResponseOptions(temperature=0.0), ("sampling",)),
        (ResponseOptions(top_p=0.5), ("sampling",)),
        (ResponseOptions(seed=0), ("sampling",)),
        (ResponseOptions(temperature=1.0, top_p=1.0), ()),
        (ResponseOptions(tools=(LOOK,)), ("tools",)),
        (ResponseOptions(tools=(LOOK,), tool_choice="none"), ()),
        (ResponseOptions(tools=(LOOK,), tool_choice="required"), ("tools",)),
        (ResponseOptions(tools=(LOOK,), tool_choice="look"), ("tools",)),
    ],
)
def test_capabilities_required_of_the_final_worker(
    response_options: ResponseOptions, needs: Collection[Capability]
) -> None:
    assert answer_capabilities(response_options) == set(needs)


def test_a_sole_worker_needs_vision_and_tools_too() -> None:
    assert sole_worker_capabilities(ResponseOptions(tools=(LOOK,)), PICTURE) == {"tools", "vision"}


def test_a_plan_that_can_do_what_is_needed_stays_as_it_is() -> None:
    pool = Pool((worker("a", "vision"), worker("b", "json", "tools")))
    response_options = ResponseOptions(schema={}, tools=(LOOK,))
    assert fit_workflow(chain("a", "b"), pool, response_options, PICTURE) == (chain("a", "b"), ())


def test_the_named_fallback_is_tried_first() -> None:
    pool = Pool(
        (
            worker("a", fallback="b"),
            worker("b", fallback="c"),
            worker("c", "json"),
            worker("d", "json", dollars=9),
        )
    )
    workflow, said = fit_workflow(chain("a"), pool, JSON, ())
    assert workflow == chain("c")
    assert said == ("a cannot write JSON to a schema, so c answers in its place",)


def test_without_a_substitute_the_best_worker_that_can_takes_over() -> None:
    pool = Pool((worker("a"), worker("b", "json", dollars=1), worker("c", "json", dollars=5)))
    assert fit_workflow(chain("b", "a"), pool, JSON, ())[0] == chain("b", "c")


def test_unseen_images_go_to_the_final_step() -> None:
    pool = Pool((worker("a", "json"), worker("b", "vision"), worker("c", "vision", "json")))
    workflow, said = fit_workflow(chain("a", "a"), pool, JSON, PICTURE)
    assert workflow == chain("a", "c")
    assert said == ("a cannot see images, so c answers in its place",)


def test_a_pdf_needs_a_worker_that_reads_pdfs() -> None:
    pdf = (Image("application/pdf", "JVBERi0="),)
    pool = Pool((worker("a", "vision"), worker("b", "vision", "pdf")))
    assert fit_workflow(chain("a"), pool, DEFAULT_RESPONSE_OPTIONS, pdf)[0] == chain("b")
    with pytest.raises(UsageError, match="no worker of the pool can read PDFs"):
        check_demands(Pool((worker("a", "vision"),)), DEFAULT_RESPONSE_OPTIONS, pdf)


def test_an_image_that_a_tool_has_shown_goes_to_a_worker_that_sees_if_there_is_one() -> None:
    pool = Pool((worker("a", "json"), worker("b", "vision"), worker("c", "vision", "json")))
    assert fit_workflow(chain("a"), pool, JSON, (), PICTURE)[0] == chain("c")
    blind = pool.without({"c"})
    assert fit_workflow(chain("a"), blind, JSON, (), PICTURE) == (chain("a"), ())


def test_uncallable_tools_go_to_the_final_step() -> None:
    pool = Pool((worker("a"), worker("b", "tools")))
    assert fit_workflow(chain("a"), pool, ResponseOptions(tools=(LOOK,)), ())[0] == chain("b")
    assert fit_workflow(chain("b", "a"), pool, ResponseOptions(tools=(LOOK,)), ())[0] == chain(
        "b", "b"
    )


def test_a_plan_that_no_one_worker_can_save_is_refused() -> None:
    pool = Pool((worker("a", "json"), worker("b", "vision")))
    check_demands(pool, JSON, PICTURE)
    with pytest.raises(RequestRefused, match="a gives the answer but cannot see images"):
        fit_workflow(chain("a"), pool, JSON, PICTURE)


def test_a_conductor_has_the_capabilities_of_its_workers() -> None:
    lead = worker("lead", provider=CONDUCTOR_PROVIDER)
    pool = Pool((lead, worker("a", "json", "vision")))
    assert fit_workflow(chain("lead"), pool, JSON, PICTURE)[1] == ()


def test_an_incapable_pool_is_rejected_with_the_missing_capability() -> None:
    with pytest.raises(UsageError, match="no worker of the pool can see images.*it has a"):
        check_demands(Pool((worker("a"),)), DEFAULT_RESPONSE_OPTIONS, PICTURE)
    with pytest.raises(UsageError, match="can call tools"):
        check_demands(Pool((worker("a"),)), ResponseOptions(tools=(LOOK,)), ())
    check_demands(Pool((worker("a"),)), ResponseOptions(tools=(LOOK,), tool_choice="none"), ())


@pytest.mark.parametrize(
    ("response_options", "problem"),
    [
        (ResponseOptions(tools=(LOOK, LOOK)), "two tools are named 'look'"),
        (ResponseOptions(tools=(Tool("", "", {}),)), "named '', which is reserved"),
        (ResponseOptions(tools=(Tool("auto", "", {}),)), "named 'auto', which is reserved"),
        (ResponseOptions(tools=(LOOK,), tool_choice="fly"), r"tool_choice is 'fly'.*\(look\)"),
        (
            ResponseOptions(tool_choice="required"),
            "tool_choice is 'required', but there are no tools",
        ),
        (ResponseOptions(max_tokens=0), "max_tokens is 0"),
    ],
)
def test_terms_that_contradict_themselves_are_refused(
    response_options: ResponseOptions, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        check_response_options(response_options)
