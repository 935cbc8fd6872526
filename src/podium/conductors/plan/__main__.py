"""Prints the JSON Schema of workflow files: `python -m podium.plan > docs/workflow.schema.json`."""

from __future__ import annotations

import json
import sys

from podium.conductors.plan.schema import schema

if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
