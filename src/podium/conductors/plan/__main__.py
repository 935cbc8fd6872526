"""Print the JSON Schema of workflow files.

python -m podium.conductors.plan > docs/workflow.schema.json
"""

from __future__ import annotations

import json
import sys

from podium.conductors.plan.writer import schema

if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
