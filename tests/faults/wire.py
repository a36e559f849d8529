"""The daemon's connection to the API server: responses may be garbled or repeated, and requests are checked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.daemon.sharding.replica import durations_of
from tests.faults.limits import parsed
from tests.support.daemon_harness import GarblingConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from scheduler.kube.client.connect import Credentials
    from scheduler.kube.http.endpoint import Endpoint
    from scheduler.kube.http.request import Request, Response
    from tests.faults.stage import Stage


class Wire(GarblingConnection):
    """One daemon's. No Binding may leave once the daemon's own lease has run out, however late it learns of it.

    Nor may one that another replica has to send.
    """

    def __init__(
        self, endpoint: Endpoint, stage: Stage, name: str, authorization: Credentials | None = None
    ) -> None:
        super().__init__(endpoint, authorization=authorization)
        self.garbled = stage.garbled
        self.user_agent = name
        self._stage = stage
        self._random = stage.random_of(f"wire of {name}")
        election = parsed(stage.plan.configuration).settings.leader_election
        self._renew_deadline = election.renew_deadline.seconds
        if stage.plan.shards:
            self._renew_deadline = durations_of(election).renew_deadline
        self._lease_written_at = 0.0
        self._leads_until = float("-inf")

    async def send(self, request: Request, **options: Any) -> Response:
        response = await super().send(request, **options)
        if self._writes_lease(request):
            self._leads_until = self._lease_written_at + self._renew_deadline
        return response

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[list[bytes], None]:
        async for lines in super().stream(*args, **options):
            yield lines
            if self._random.random() < self._stage.repetition:
                yield lines

    def _encode(self, request: Request) -> bytes:
        """Called when a request is written, with nothing to wait for any more."""
        now = asyncio.get_running_loop().time()
        if self._writes_lease(request):
            self._lease_written_at = now
        elif request.path.endswith("/binding"):
            if self._stage.plan.elects and now > self._leads_until:
                late = now - self._leads_until
                self._stage.find(
                    f"{self.user_agent} sends {request.path} {late:.3f} s after its lease ran out"
                )
            if self._stage.plan.shards:
                node = msgspec.json.decode(request.body)["target"]["name"]
                self._stage.lives.binding_leaves(self.user_agent, request.path, node)
        return super()._encode(request)

    def _writes_lease(self, request: Request) -> bool:
        """Whether a request acquires or renews the Lease by which the daemon may write."""
        if "/leases" not in request.path or request.method not in {"POST", "PUT", "PATCH"}:
            return False
        record = msgspec.json.decode(request.body)
        is_own = record["metadata"]["name"] == record["spec"].get("holderIdentity")
        return is_own or not self._stage.plan.shards
