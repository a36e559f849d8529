"""`python -m tests.conformance.real_groups`: the scenarios of pod groups on a real API server, with a daemon as a process.

The API server must be empty, have the kinds (`--runtime-config=scheduling.k8s.io/v1alpha2=true`) and all feature gates of
workloads on, and the kubeconfig may do everything. Each case has a namespace of its own, which goes with its nodes
afterwards; no controller is needed. A case that differs is played again, so often at most: some outcomes are a race.
Ends with status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect
from scheduler.kube.http.request import Request
from tests.conformance.group_play import play, whole_node
from tests.conformance.groups import cases, priority_classes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scheduler.kube.client.connection import ApiConnection
    from tests.conformance.group_play import Object
    from tests.conformance.groups import Case

_NODES, _SPACES = "/api/v1/nodes", "/api/v1/namespaces"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_PATHS = {  # kind -> where those of a namespace are
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodGroup": "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
_LABEL = "custom-scheduler-conformance"
_START_SECONDS, _END_SECONDS = 60.0, 15.0
_GONE, _THERE = 404, 409


class _Server:
    """An API server, asked for objects."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def __call__(
        self, method: str, path: str, body: Any = None, *, but: Iterable[int] = (), **query: str
    ) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else msgspec.json.encode(body)
        try:
            answer = await self._connection.send(Request(method, path, data, kind, query))
        except ApiError as error:
            if error.status in but:
                return None
            raise
        return msgspec.json.decode(answer.body)

    async def list(self, path: str) -> list[Object]:
        found: list[Object] = (await self("GET", path))["items"]
        return found


class _Real:
    """A Stage."""

    def __init__(self, server: _Server, space: str, pages: str) -> None:
        self._server = server
        self._space = space
        self._pages = pages

    def _path(self, kind: str) -> str:
        return _NODES if kind == "Node" else _PATHS[kind].format(self._space)

    async def create(self, obj: Object) -> None:
        if obj["kind"] == "Node":
            obj["metadata"].setdefault("labels", {})[_LABEL] = ""
        made = await self._server("POST", self._path(obj["kind"]), obj)
        if lost := obj.get("spec", {}).keys() - made.get("spec", {}).keys():
            raise SystemExit(f"the API server drops {', '.join(lost)} of a {obj['kind']}: a gate is off")

    async def delete(self, kind: str, name: str) -> None:
        path = f"{self._path(kind)}/{name}"
        if kind == "PodGroup":  # its protection is a controller's to take away
            await self._server("PATCH", path, {"metadata": {"finalizers": None}})
        await self._server("DELETE", path)

    async def patch_pod(self, name: str, patch: Any, *, status: bool = False) -> None:
        await self._server("PATCH", f"{self._path('Pod')}/{name}{'/status' * status}", patch)

    async def pods(self) -> list[Object]:
        return await self._server.list(self._path("Pod"))

    async def groups(self) -> list[Object]:
        return await self._server.list(self._path("PodGroup"))

    async def cycles(self) -> float | None:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self._pages}/metrics") as answer:
                text = await answer.text() if answer.ok else ""
        except aiohttp.ClientError:
            return None
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "scheduler_podgroup_schedule_attempts_total"
        )

    async def writes(self) -> None:
        """Who wrote what is in the audit log only."""

    async def clear(self) -> None:
        """Take away all that the case made."""
        for group in await self.groups():
            await self.delete("PodGroup", group["metadata"]["name"])
        for kind in _PATHS:
            await self._server("DELETE", self._path(kind), gracePeriodSeconds="0")
        await self._server("DELETE", _NODES, labelSelector=_LABEL)
        await self._server("DELETE", f"{_SPACES}/{self._space}", but=(_GONE, _THERE))
        ended = {"metadata": {"name": self._space}, "spec": {"finalizers": []}}
        await self._server("PUT", f"{_SPACES}/{self._space}/finalize", ended, but=(_GONE, _THERE))


@asynccontextmanager
async def _daemon(case: Case, kubeconfig: Path, folder: Path) -> AsyncIterator[str]:
    """Run a daemon until it is ready; yields the URL of its pages."""
    config, log = folder / "config.json", folder / "log"
    config.write_text(case.configuration)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "scheduler", "run",
            "--config", str(config), "--kubeconfig", str(kubeconfig), "--leader-elect=false",
            "--replace-default-scheduler", "--secure-port=0", f"--http-port={port}",
            stdout=out, stderr=out,
        )  # fmt: skip
    pages = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
            while not await _is_ready(session, pages):
                if process.returncode is not None:
                    raise SystemExit(f"the daemon ended:\n{log.read_text()}")
                await asyncio.sleep(0.2)
        yield pages
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()


async def _is_ready(session: aiohttp.ClientSession, pages: str) -> bool:
    try:
        async with session.get(f"{pages}/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


async def _play(case: Case, server: _Server, kubeconfig: Path) -> list[str]:
    """Play a case; returns what went otherwise than recorded."""
    space = f"{_LABEL}-{time.time_ns()}"
    await server("POST", _SPACES, {"metadata": {"name": space, "labels": {_LABEL: ""}}})
    stage = _Real(server, space, "")
    try:
        for node in case.stored["initialNodes"]:
            await stage.create(whole_node(node))
        with TemporaryDirectory() as folder:
            async with _daemon(case, kubeconfig, Path(folder)) as pages:
                differences = await play(case, _Real(server, space, pages))
    finally:
        await stage.clear()
    return [str(each) for each in differences]


async def play_all(kubeconfig: Path, only: list[str], tries: int) -> int:
    """Play cases, all without `only`, and print how they went; returns 1 if one differs, else 0."""
    wrong = 0
    async with connect(str(kubeconfig)) as connection:
        server = _Server(connection)
        if await server.list(_NODES):
            raise SystemExit("the API server has nodes already: an empty one is needed")
        for name, said in priority_classes().items():
            await server("POST", _CLASSES, {"metadata": {"name": name}, **said}, but=(_THERE,))
        for name in only or cases():
            told: list[str] = []
            for _ in range(tries):
                told = await _play(cases()[name], server, kubeconfig)
                if not told:
                    break
            wrong += bool(told)
            print("differs" if told else "equal  ", name, *told, sep="\n    " if told else " ", flush=True)  # noqa: T201
    return int(wrong > 0)


def main() -> int:
    """Read the flags and play."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], choices=cases(), metavar="CASE")
    parser.add_argument(
        "--tries", type=int, default=1, help="how often a case is played until it does not differ"
    )
    given = parser.parse_args()
    return asyncio.run(play_all(given.kubeconfig, given.only, given.tries))


if __name__ == "__main__":
    sys.exit(main())
