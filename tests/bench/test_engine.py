"""The whole measurement, with a LangGraph that is not the real one but is installed like it."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import environment
from benchmarks.engine import measure_engine
from benchmarks.environment import LANGGRAPH, Command, Peer
from podium.core.errors import ConfigError

FAKE_LANGGRAPH = """
START, END = "start", "end"


class StateGraph:
    def __init__(self, state):
        self.nodes, self.edges = {}, {}

    def add_node(self, name, node):
        self.nodes[name] = node

    def add_edge(self, before, after):
        self.edges[before] = after

    def compile(self):
        return self

    async def ainvoke(self, state):
        at, steps = self.edges[START], 0
        while at != END:
            state = await self.nodes[at](state)
            at, steps = self.edges[at], steps + 1
        assert steps == 5
        return state
"""

BROKEN_LANGGRAPH = "raise ImportError('this package is broken')"


class InstallsFake:
    """Makes a real virtual environment, and puts a package of our own into it."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __call__(self, peer: Peer) -> tuple[Command, ...]:
        where = (
            "import json, pathlib, sysconfig\n"
            f"for name, text in json.loads({json.dumps(json.dumps(self._files()))}).items():\n"
            "    path = pathlib.Path(sysconfig.get_path('purelib'), name)\n"
            "    path.parent.mkdir(exist_ok=True)\n"
            "    path.write_text(text)\n"
        )
        return (
            (sys.executable, "-m", "venv", "--without-pip", str(peer.directory)),
            (str(peer.program), "-I", "-c", where),
        )

    def _files(self) -> dict[str, str]:
        return {
            "langgraph/graph.py": self._source,
        }


@pytest.mark.usefixtures("podium_home")
async def test_langgraph_is_measured_from_its_own_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(environment, "install_commands", InstallsFake(FAKE_LANGGRAPH))
    figures = await measure_engine(3, peers=True, on_progress=said.append)
    assert figures.document["langgraph"] == LANGGRAPH.version
    assert set(figures.document["microseconds"]) == {
        "taskgroup",
        "engine",
        "engine_watched",
        "runner",
        "langgraph",
    }
    assert (
        0 < figures.document["langgraph_ratio"] < 1
    )  # a loop over five awaits is less than an engine
    assert len(said) == 2


@pytest.mark.usefixtures("podium_home")
async def test_a_langgraph_that_does_not_start_is_an_error_that_names_the_remedy(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "install_commands", InstallsFake(BROKEN_LANGGRAPH))
    with pytest.raises(ConfigError, match="langgraph gave no figures.*--no-peers"):
        await measure_engine(1, peers=True, on_progress=lambda line: None)
    assert "this package is broken" in capfd.readouterr().err
