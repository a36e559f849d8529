"""The API server has its moods: slow, overloaded, broken, forgetful."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from scheduler.tools.simulator.access.rbac import MASTERS, User
from scheduler.tools.simulator.faults import any_request, binds, requests
from tests.faults.actors.actor import Actor

if TYPE_CHECKING:
    from scheduler.tools.simulator.faults import Fault, Match

_MATCHES: dict[str, Match] = {
    "everything": any_request,
    "bindings": binds,
    "status patches": requests(verb="patch", resource="pods", subresource="status"),
    "reads of pods": requests(verb="get", resource="pods"),
    "events": requests(resource="events"),
    "the lease": requests(resource="leases"),
    "watches": requests(verb="watch"),
    "watches of pods": requests(verb="watch", resource="pods"),
    "watches of nodes": requests(verb="watch", resource="nodes"),
    "watches of claims": requests(verb="watch", resource="persistentvolumeclaims"),
    "watches of volumes": requests(verb="watch", resource="persistentvolumes"),
    "watches of device claims": requests(verb="watch", resource="resourceclaims"),
    "watches of devices": requests(verb="watch", resource="resourceslices"),
    "writes of device claims": requests(verb="update", resource="resourceclaims"),
    "writes of claims": requests(verb="update", resource="persistentvolumeclaims"),
    "writes of volumes": requests(verb="update", resource="persistentvolumes"),
}
_WRITES = (
    "bindings",
    "status patches",
    "events",
    "writes of claims",
    "writes of volumes",
    "writes of device claims",
)
_WATCHES = (
    "watches",
    "watches of pods",
    "watches of nodes",
    "watches of claims",
    "watches of volumes",
    "watches of device claims",
    "watches of devices",
)
_REFUSALS = (429, 429, 500, 500, 502, 503, 504)


class FaultyApi(Actor):
    """Whoever runs the API server."""

    name = "api"
    pause_seconds: ClassVar[tuple[float, float]] = (0.5, 8.0)

    async def act(self) -> None:
        self.weighted(
            (4, self._slow),
            (4, self._refuse),
            (2, self._conflict),
            (1, self._forbid),
            (4, self._lose_answers),
            (3, self._drop),
            (4, self._stall),
            (3, self._forget),
        )()

    def calm(self) -> None:
        self.stage.server.faults.clear()

    def _slow(self) -> None:
        what = self.random.choice(list(_MATCHES))
        least = self.random.choice((0.0, 0.05, 0.5, 5.0))
        most = least + self.random.choice((0.0, 0.3, 4.0, 40.0))
        fault = self.stage.server.faults.delay((least, most), _MATCHES[what], probability=self._probability())
        self._for_a_while(fault, f"{what} take {least} to {most} s")

    def _refuse(self) -> None:
        what, code = self.random.choice(("bindings", *_MATCHES)), self.random.choice(_REFUSALS)
        after = self.random.choice((None, 1, 5)) if code in {429, 503} else None
        fault = self.stage.server.faults.refuse(
            code, _MATCHES[what], probability=self._probability(), retry_after_seconds=after
        )
        self._for_a_while(fault, f"{what} are refused with {code}, Retry-After {after}")

    def _conflict(self) -> None:
        what = self.random.choice(
            ("bindings", "status patches", "writes of claims", "writes of volumes", "writes of device claims")
        )
        fault = self.stage.server.faults.refuse(409, _MATCHES[what], times=self.random.randint(1, 5))
        self._for_a_while(fault, f"{what} are in conflict")

    def _forbid(self) -> None:
        what, code = self.random.choice(("bindings", "the lease", *_WATCHES)), self.random.choice((401, 403))
        fault = self.stage.server.faults.refuse(code, _MATCHES[what])
        self._for_a_while(fault, f"{what} are forbidden with {code}")

    def _lose_answers(self) -> None:
        what = self.random.choice(("bindings", "bindings", *_WRITES))
        fault = self.stage.server.faults.lose_answers(_MATCHES[what], probability=self._probability())
        self._for_a_while(fault, f"answers to {what} are lost")
        # Asking what became of them may not help, nor waiting to be told.
        if self.random.random() < 0.5:
            self._stall()
        if self.random.random() < 0.3:
            fault = self.stage.server.faults.refuse(503, _MATCHES["reads of pods"])
            self._for_a_while(fault, "reads of pods are refused with 503")

    def _drop(self) -> None:
        what = self.random.choice(_WATCHES)
        hit = self.stage.server.faults.drop_watches(_MATCHES[what])
        self.tell(f"{hit} {what} are cut")

    def _stall(self) -> None:
        what = self.random.choice(_WATCHES)
        fault = self.stage.server.faults.stall_watches(_MATCHES[what], future=self.random.random() < 0.5)
        self._for_a_while(fault, f"{what} fall silent")

    def _forget(self) -> None:
        """Compact, and cut watches, so that they cannot go on from where they were."""
        self.tell("history is compacted and watches are cut")
        self.stage.server.faults.drop_watches()
        if self.random.random() < 0.5:
            fault = self.stage.server.faults.refuse(503, _MATCHES["watches"])
            self._for_a_while(fault, "watches are refused with 503")
            self.stage.later(self.random.uniform(1.0, 20.0), self.stage.server.faults.compact)
        self.stage.server.faults.compact()

    def _for_a_while(self, fault: Fault, what: str) -> None:
        seconds = self.random.choice((0.5, 3.0, 10.0, 30.0, 60.0))
        self.tell(f"{what}, for {seconds} s")
        self.stage.later(seconds, self.stage.server.faults.remove, fault)

    def _probability(self) -> float:
        return self.random.choice((0.3, 0.7, 1.0))


class Tokens(Actor):
    """Tokens expire: the server refuses the old one at once, and the file has another then, or a while later."""

    name = "tokens"
    pause_seconds: ClassVar[tuple[float, float]] = (3.0, 25.0)

    def begin(self) -> None:
        self._file = self.stage.folder / "token"
        kubeconfig = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://localhost"}}],
            "users": [{"name": "u", "user": {"tokenFile": str(self._file)}}],
        }
        self.stage.kubeconfig = self.stage.folder / "kubeconfig"
        self.stage.kubeconfig.write_text(json.dumps(kubeconfig))
        self._expire()
        self._write(1)

    async def act(self) -> None:
        seconds = self.random.choice((0.0, 0.0, 1.0, 8.0))
        self._expire()
        self.tell(f"expire: the file has token {self._count} in {seconds} s")
        self.stage.later(seconds, self._write, self._count)

    def calm(self) -> None:
        self._write(self._count)

    def _expire(self) -> None:
        self._count += 1
        accepted = self.stage.server._security._tokens._static
        accepted.clear()
        accepted[f"token-{self._count}".encode()] = User("daemon", groups=(MASTERS,)).authenticated()

    def _write(self, count: int) -> None:
        self._file.write_text(f"token-{count}")
