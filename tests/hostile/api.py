"""A client of any API server: it creates objects by the thousand, and removes all that it created."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

Json = dict[str, Any]

LABEL = "hostile"
"""The label of all objects that the scenarios create, and of their namespaces."""
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For TLS with servers whose certificates are made for the day."""
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE
_AT_ONCE = 32
_TRIALS = 50
_KINDS_LAST = ("Namespace", "CustomResourceDefinition")
_TIMEOUT = 504
"""The API server answers so, or disconnects, after a minute in which it deleted only a part of a large collection."""
_NO_GRACE = {"gracePeriodSeconds": "0"}
_ESTABLISHED_SECONDS = 60.0


class RefusedError(Exception):
    """The API server refused a request.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, method: str, path: str, status: int, answer: bytes) -> None:
        super().__init__(f"{method} {path}: {status} {answer[:300].decode(errors='replace')}")
        self.status = status


@asynccontextmanager
async def connected(server: str, token: str) -> AsyncIterator[Api]:
    """Connect to the API server at a URL; its certificate is not verified."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(limit=0, ssl=UNVERIFIED)
    forever = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=forever) as session:
        yield Api(session, server)


async def each(
    function: Callable[..., Awaitable[Any]], items: Iterable[Any], at_once: int = _AT_ONCE
) -> None:
    """Call a function with every item, so many at once."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await function(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


class Api:
    """The API server.

    Args:
        session: carries the credentials.
        server: its URL.
        owner: the value of the label of all objects that are created here.
    """

    def __init__(self, session: aiohttp.ClientSession, server: str, owner: str = "base") -> None:
        self.session = session
        self._server = server
        self._owner = owner
        # (version, kind) -> plural, is namespaced
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}
        self._created: dict[str, str] = {}  # path of a collection -> kind

    def url(self, path: str) -> str:
        return self._server + path

    async def ask(
        self, method: str, path: str, body: Json | bytes | None = None, kind: str = "application/json", /, **query: str
    ) -> bytes:  # fmt: skip
        """Send a request, and return the answer's body.

        Raises:
            RefusedError: the status is 400 or more.
        """
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": kind}
        for trial in count(1):
            try:
                async with self.session.request(
                    method, self.url(path), data=data, headers=headers, params=query
                ) as it:
                    answer = await it.read()
                    if it.status < 400:
                        return answer
                    is_retried = it.status == 429 or (method == "DELETE" and it.status == _TIMEOUT)
                    if not is_retried or trial > _TRIALS:
                        raise RefusedError(method, path, it.status, answer)
            except aiohttp.ServerDisconnectedError:
                if method != "DELETE" or trial > _TRIALS:
                    raise
            await asyncio.sleep(0.1 * trial)
        raise AssertionError

    async def get(self, path: str, **query: str) -> Json:
        found: Json = json.loads(await self.ask("GET", path, **query))
        return found

    async def items(self, path: str, **query: str) -> list[Json]:
        found: list[Json] = (await self.get(path, **query))["items"]
        return found

    async def patch(self, path: str, change: Json, kind: str = MERGE) -> None:
        await self.ask("PATCH", path, change, kind)

    async def create(self, obj: Json, raw: bytes | None = None) -> None:
        """Create an object with the label; `raw` is its JSON where the object is only its head."""
        collection = await self.collection(
            obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace", "")
        )
        if raw is None:
            obj["metadata"].setdefault("labels", {})[LABEL] = self._owner
        self._created[collection] = obj["kind"]
        await self.ask("POST", collection, obj if raw is None else raw)

    async def create_all(self, objects: Iterable[Json]) -> None:
        """Create objects, many at once, so in no order."""
        await each(self.create, objects)

    async def collection(self, version: str, kind: str, namespace: str) -> str:
        """Return the path of a kind's collection; of a kind whose definition is new, once it is served."""
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        for _ in range(round(_ESTABLISHED_SECONDS / 0.1)):
            if (version, kind) in self._plurals:
                plural, is_namespaced = self._plurals[version, kind]
                return f"{root}/namespaces/{namespace}/{plural}" if is_namespaced else f"{root}/{plural}"
            try:
                served = await self.get(root)
            except RefusedError:
                served = {"resources": ()}
            for each_ in served["resources"]:
                if "/" not in each_["name"]:
                    self._plurals[version, each_["kind"]] = each_["name"], each_["namespaced"]
            if (version, kind) not in self._plurals:
                await asyncio.sleep(0.1)
        raise LookupError(f"the API server does not serve {version} {kind}")

    async def remove_all(self) -> None:
        """Remove every object that was created here, custom resources before their definitions, namespaces last."""
        order = sorted(self._created.items(), key=lambda found: found[1] in _KINDS_LAST)
        self._created = {}
        for collection, kind in order:
            await self._remove(collection, kind, f"{LABEL}={self._owner}")

    async def sweep(self) -> None:
        """Remove what is left of an earlier run that did not end in order."""
        for version in await self._versions():
            root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
            for found in (await self.get(root))["resources"]:
                if "deletecollection" in found["verbs"] and not found["namespaced"]:
                    await self._remove(f"{root}/{found['name']}", found["kind"], LABEL)
        namespaces = "/api/v1/namespaces"
        for found in await self.items(namespaces, labelSelector=LABEL):
            await self._empty(found["metadata"]["name"])
        await self._remove(namespaces, "Namespace", LABEL)

    async def _versions(self) -> list[str]:
        groups = (await self.get("/apis"))["groups"]
        return ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]

    async def _empty(self, namespace: str) -> None:
        for version in await self._versions():
            root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
            for found in (await self.get(root))["resources"]:
                if "deletecollection" in found["verbs"] and found["namespaced"]:
                    await self._remove(f"{root}/namespaces/{namespace}/{found['name']}", found["kind"], LABEL)

    async def _remove(self, collection: str, kind: str, selector: str) -> None:
        if kind == "Namespace":
            await each(self._finalize, await self.items(collection, labelSelector=selector))
            return
        try:
            await self.ask("DELETE", collection, labelSelector=selector, **_NO_GRACE)
            left = await self.items(collection, labelSelector=selector)
        except RefusedError as error:
            if error.status in {404, 405}:  # its definition has gone, or it cannot be deleted so
                return
            raise

        async def release(found: Json) -> None:
            path = f"{collection}/{found['metadata']['name']}"
            for request in (
                ("PATCH", path, {"metadata": {"finalizers": None}}, MERGE),
                ("DELETE", path, None, "application/json"),
            ):
                try:
                    await self.ask(*request, **(_NO_GRACE if request[0] == "DELETE" else {}))
                except RefusedError as error:
                    if error.status not in {404, 409, 422}:
                        raise

        await each(release, left)

    async def _finalize(self, found: Json) -> None:
        """Remove a namespace: where no controller manager is, nobody else finalizes it."""
        path = f"/api/v1/namespaces/{found['metadata']['name']}"
        for method, at in (("DELETE", path), ("PUT", f"{path}/finalize")):
            body = {**found, "spec": {"finalizers": []}} if method == "PUT" else None
            if body is not None:
                body["metadata"] = {"name": found["metadata"]["name"]}
            try:
                await self.ask(method, at, body)
            except RefusedError as error:
                if error.status not in {404, 405, 409}:
                    raise
