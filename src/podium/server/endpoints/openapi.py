"""OpenAPI schemas of bodies that the dialects check: the fields that clients send most.

The data is in `openapi.json`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

Schema = dict[str, Any]

_DATA: Final[dict[str, Any]] = json.loads(
    resources.files(__package__).joinpath("openapi.json").read_text("utf-8")
)


def request_body(schema: Schema) -> dict[str, Any]:
    """Return the OpenAPI fragment of an endpoint with such a body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def named_body(name: str) -> dict[str, Any]:
    """Return the OpenAPI fragment of an endpoint with the body of that name in `openapi.json`."""
    return request_body({"$ref": f"#/components/schemas/{name}"})


def add_dialect_paths(schema: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Add the dialects' endpoints, errors and authentication to the schema."""
    for path in paths:
        described = _DATA["paths"][path]
        schema["paths"].setdefault(path, {})["post"] = {
            "tags": [path.split("/")[2]],
            "summary": described["summary"],
            "operationId": f"post{path.replace('/', '_')}",
            **named_body(described["schema"]),
            "responses": {"200": _DATA["response"]},
        }
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # these are 400 here
            operation["responses"]["default"] = _DATA["error"]
    components = schema.setdefault("components", {})
    components["schemas"] = components.get("schemas", {}) | _DATA["schemas"]
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}, {}]
    return schema
