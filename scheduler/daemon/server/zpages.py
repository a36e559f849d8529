"""/statusz and /flagz: the component, its start time, and its flags, by the Accept header.

Text for people; JSON and YAML for clients that request a version of config.k8s.io, as in
`Accept: application/json;v=v1beta1;g=config.k8s.io;as=Statusz`.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go.
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/statusz and flagz.
"""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from scheduler.clock import rfc3339
from scheduler.http_server.messages import JSON, Page, ServerResponse, status_answer
from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.http_server.messages import ServerRequest

TEXT = "text/plain"
YAML = "application/yaml"
_SERVED = (JSON, YAML, TEXT)
_VERSIONS = ("v1beta1", "v1alpha1")


class Form(NamedTuple):
    """The media type of a response, and, unless it is text, the version of its kind."""

    media_type: str
    version: str = ""


class _Wanted(NamedTuple):
    """One clause of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]
    quality: float


def negotiated(accept: str, group: str, kind: str) -> Form | None:
    """Return the form of an endpoint that serves text, and a kind of a group by the parameters `as`, `g` and `v`.

    None if no accepted form is served; an empty header means text.
    """
    if not accept.strip():
        return Form(TEXT)
    for wanted in _clauses(accept):
        parameters = wanted.parameters
        if parameters.get("stream") or parameters.get("sv"):
            continue
        target = {name: value for name, value in parameters.items() if name in {"as", "g", "v"}}
        version = target.get("v", "")
        for served in _SERVED:
            if not _matches(wanted.media_type, served):
                continue
            if served == TEXT:
                if not target:
                    return Form(TEXT)
            elif version in _VERSIONS and target == {"as": kind, "g": group, "v": version}:
                return Form(served, version)
    return None


def not_acceptable() -> ServerResponse:
    """Return the error response with the served media types."""
    message = f"only the following media types are accepted: {', '.join(_SERVED)}"
    return status_answer(406, "NotAcceptable", message)


def _clauses(accept: str) -> list[_Wanted]:
    """Return the clauses by descending quality; on a tie, specific types come before wildcards."""
    found = [_clause(text) for text in accept.split(",")]
    return sorted(
        (each for each in found if "/" in each.media_type),
        key=lambda each: (-each.quality, each.media_type.startswith("*/"), each.media_type.endswith("/*")),
    )


def _clause(text: str) -> _Wanted:
    media_type, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for name, sign, value in (part.partition("=") for part in rest):
        if sign:
            parameters[name.strip()] = value.strip()
    quality = 1.0
    with suppress(ValueError):
        quality = float(parameters.pop("q", "1"))
    return _Wanted("*/*" if media_type == "*" else media_type, parameters, quality)


def _matches(wanted: str, served: str) -> bool:
    return wanted in {served, f"{served.partition('/')[0]}/*", "*/*"}


_GROUP = "config.k8s.io"
_DEPRECATED = "v1alpha1"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only."
)


@dataclass(frozen=True, slots=True)
class Process:
    """The process that the endpoints describe.

    Attributes:
        component: its name.
        flags: flag without dashes -> its value as text; must not contain secrets.
        began: returns its start time, in Unix seconds.
        emulated: returns the emulated version of Kubernetes.
    """

    component: str
    flags: Mapping[str, str]
    began: Callable[[], float]
    emulated: Callable[[], str]


def zpages(process: Process, others: Iterable[Page]) -> list[Page]:
    """Return both endpoints; /statusz lists the first path segments of the other endpoints."""
    flags = _page(process, "/flagz", "Flagz", lambda: {"flags": dict(process.flags)}, _flags_text)
    readable = {page.path.split("/")[1] for page in (*others, flags) if "GET" in page.methods} - {""}
    paths = [f"/{name}" for name in sorted(readable)]
    return [flags, _page(process, "/statusz", "Statusz", lambda: _status(process, paths), _status_text)]


def _page(
    process: Process,
    path: str,
    kind: str,
    content: Callable[[], dict[str, Any]],
    text: Callable[[Mapping[str, Any]], str],
) -> Page:
    async def answer(request: ServerRequest) -> ServerResponse:
        form = negotiated(request.headers.get("accept", ""), _GROUP, kind)
        if form is None:
            return not_acceptable()
        if form.media_type == TEXT:
            title = f"{process.component} {path.strip('/')}"
            return ServerResponse(f"\n{title}\n{_WARNING}\n{text(content())}".encode())
        body = {
            "kind": kind,
            "apiVersion": f"{_GROUP}/{form.version}",
            "metadata": {"name": process.component},
            **content(),
        }
        written = msgspec.json.encode(body) if form.media_type == JSON else yaml.safe_dump(body).encode()
        headers = {}
        if form.version == _DEPRECATED:
            of = path.strip("/")
            headers["Warning"] = (
                f'299 - "This version of the {of} endpoint is deprecated. Please use a newer version."'
            )
        return ServerResponse(
            written,
            content_type=f"{form.media_type};g={_GROUP};v={form.version};as={kind}",
            headers=headers,
        )

    return Page(path, answer)


def _flags_text(content: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in sorted(content["flags"].items()))


def _status(process: Process, paths: list[str]) -> dict[str, Any]:
    began = process.began()
    return {
        "startTime": rfc3339(datetime.fromtimestamp(began, UTC)),
        "uptimeSeconds": max(0, int(time.time() - began)),
        "goVersion": "",  # there is no Go code
        "pythonVersion": platform.python_version(),
        "binaryVersion": VERSION,
        "emulationVersion": process.emulated(),
        "paths": paths,
    }


def _status_text(status: Mapping[str, Any]) -> str:
    day_and_time, year = datetime.fromisoformat(status["startTime"]).ctime().rsplit(" ", 1)
    minutes, seconds = divmod(status["uptimeSeconds"], 60)
    return (
        f"\nStarted: {day_and_time} UTC {year}\n"
        f"Up: {minutes // 60} hr {minutes % 60:02} min {seconds:02} sec\n"
        f"Python version: {status['pythonVersion']}\n"
        f"Binary version: {status['binaryVersion']}\n"
        f"Emulation version: {status['emulationVersion']}\n"
        f"Paths: {' '.join(status['paths'])}\n"
    )
