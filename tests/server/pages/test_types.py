"""The types that stand in the comments of the pages' modules hold: TypeScript reads them. Nothing
is built of it, and using or changing a page does not need it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from podium.server.pages import STATIC

COMPILER: Final = Path(sys.prefix) / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
RULES: Final = Path(__file__).parent / "tsconfig.json"
WRONG: Final = "/** @type {number} */\nexport const words = 'no';\n"


def test_types_of_the_modules_hold_and_one_that_does_not_is_found(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not COMPILER.is_file():
        pytest.skip(
            "NO TYPESCRIPT: ./test installs it where there is npm, to read the pages' types"
        )
    project = {"extends": str(RULES), "include": [f"{STATIC}/**/*.js", "wrong.js"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(project), "utf-8")
    (tmp_path / "wrong.js").write_text(WRONG, "utf-8")
    output = subprocess.run(
        [node, COMPILER, "--project", tmp_path, "--pretty", "false"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "wrong.js(2,14): error TS2322: Type 'string' is not assignable to type 'number'."
    assert (output.stdout.splitlines(), output.stderr) == ([expected], "")
