"""The OpenAPI description of what-if requests, made from their types."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Final

import msgspec

from scheduler.tools.whatif.service.wire import Answer, WhatIf

PATH: Final = "/v1/whatif"
_ERRORS: Final = {
    "401": "the token is unknown",
    "403": "the user may not post to this path",
    "413": "the body is longer than 1 MiB",
    "422": "the request is invalid; `details.causes` names each field",
    "429": "another request is being answered; `Retry-After` says when to send this one again",
    "503": "the daemon has not read the cluster yet, or its container has too little memory left",
    "504": "the answer takes longer than the limit",
}
_STATUS: Final = {
    "type": "object",
    "description": "An error, as a Status object of Kubernetes.",
    "properties": {
        "kind": {"const": "Status"},
        "apiVersion": {"const": "v1"},
        "message": {"type": "string"},
        "reason": {"type": "string"},
        "code": {"type": "integer"},
        "details": {
            "type": "object",
            "properties": {
                "retryAfterSeconds": {"type": "integer"},
                "causes": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                    },
                },
            },
        },
    },
}


def description() -> dict[str, Any]:
    """Return the description as JSON values."""
    (request, answer), schemas = msgspec.json.schema_components(
        [WhatIf, Answer], ref_template="#/components/schemas/{name}"
    )
    for schema in schemas.values():
        if text := schema.get("description"):
            schema["description"] = inspect.cleandoc(text)  # Python before 3.13 keeps the indentation
    failed = {"application/json": {"schema": {"$ref": "#/components/schemas/Status"}}}
    objects = {"type": "string", "description": "API objects in YAML or JSON, as kubectl reads them."}
    parameters = [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, text, schema in (
            ("namespace", "With a body of API objects: `namespace` of the request.", {"type": "string"}),
            ("replicas", "With a body of API objects: `replicas` of the request.", {"type": "integer"}),
        )
    ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "custom-scheduler", "version": "v1"},
        "paths": {
            PATH: {
                "post": {
                    "operationId": "whatIf",
                    "summary": "Where pods would go, at whose cost, or why they would be pending. Nothing is written.",
                    "parameters": parameters,
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": request},
                            "application/yaml": {"schema": objects},
                        },
                    },
                    "responses": {
                        "200": {
                            "description": "the answer",
                            "content": {"application/json": {"schema": answer}},
                        },
                        **{code: {"description": text, "content": failed} for code, text in _ERRORS.items()},
                    },
                }
            }
        },
        "components": {"schemas": {**schemas, "Status": _STATUS}},
    }


if __name__ == "__main__":  # `make openapi`
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(description()), indent=2).decode() + "\n")
