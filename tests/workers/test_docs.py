"""What docs/reference/providers.md says, as a reader would try it."""

import re
from pathlib import Path

from podium.config import load
from podium.core.request import Request, user
from podium.workers import KNOWN_ENDPOINTS
from podium.workers.anthropic import AnthropicWorker
from podium.workers.bedrock import BedrockWorker
from podium.workers.google import GoogleWorker
from podium.workers.openai import OpenAIWorker, ResponsesWorker

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "providers.md").read_text("utf-8")
ASKED = Request((user("hello"),))


def test_every_known_vendor_has_its_row_on_the_page() -> None:
    for known in KNOWN_ENDPOINTS.values():
        (row,) = re.findall(rf"^\| `{known.provider}` \| .* \| .* \| .* \|$", PAGE, re.M)
        assert re.split("[/]+", known.base_url)[1] in row
        for variable in known.variables:
            assert variable in row


def test_every_documented_pool_loads(tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", PAGE, re.S | re.M)):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, "utf-8")
        assert len(load(path).workers) == 1


def test_every_setting_has_its_row_on_the_page() -> None:
    for worker in (
        OpenAIWorker,
        ResponsesWorker,
        AnthropicWorker,
        GoogleWorker,
        BedrockWorker,
    ):
        for setting, values in worker.option_choices.items():
            rows = re.findall(rf"^\| `\w+`.* \| `{setting}` \| (.*) \|$", PAGE, re.M)
            assert any(all(f"`{value}`" in row for value in values) for row in rows)
