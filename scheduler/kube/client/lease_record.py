"""A Lease on the wire: the fields that name the leader, and the changes to them.

Only the five fields of the leader's record change. All other fields, from a newer API server or from
annotations, are written back unchanged.

Source:
    client-go v1.36, tools/leaderelection/resourcelock/leaselock.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import rfc3339_micro
from scheduler.errors import ObjectError
from scheduler.kube.client.resources import LEASES
from scheduler.objects.decode import decode_object

if TYPE_CHECKING:
    from datetime import datetime


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The record of the leader, from a Lease's spec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        """Identity of the leader; "" for none."""
        return self.holder_identity or ""

    @property
    def transitions(self) -> int:
        """The number of changes of the holder."""
        return self.lease_transitions or 0


@dataclass(frozen=True, slots=True)
class Lease:
    """One version of a Lease.

    Attributes:
        raw: the whole object.
        record: the leader's record in its spec.
    """

    raw: dict[str, Any]
    record: LeaseRecord

    @classmethod
    def decode(cls, body: bytes, key: str) -> Lease:
        """Read a Lease.

        Args:
            body: JSON.
            key: `namespace/name`, for the message.

        Raises:
            ObjectError: the body is not a Lease.
        """
        try:
            raw = decode_object(body)
            spec = raw.get("spec")
            return cls(raw, msgspec.convert({} if spec is None else spec, LeaseRecord))
        except (msgspec.ValidationError, ObjectError) as error:
            raise ObjectError(LEASES.kind, key, "", f"unreadable: {error}") from error


@dataclass(frozen=True, slots=True)
class Claim:
    """The values that a candidate writes into a Lease.

    Attributes:
        identity: name of the candidate.
        duration_seconds: how long others must wait after the last renewal they saw.
    """

    identity: str
    duration_seconds: float

    def on_new(self, namespace: str, name: str, now: datetime) -> dict[str, Any]:
        """Return a new Lease held by this candidate."""
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": _spec(self.identity, self.duration_seconds, now, transitions=0),
        }

    def on(self, lease: Lease, now: datetime) -> dict[str, Any]:
        """Return a Lease acquired from its previous holder, or renewed."""
        record = lease.record
        is_renewal = record.holder == self.identity
        transitions = record.transitions if is_renewal else record.transitions + 1
        spec = _spec(self.identity, self.duration_seconds, now, transitions=transitions)
        if is_renewal and record.acquire_time:
            spec["acquireTime"] = record.acquire_time
        return _with_spec(lease, spec)


def released(lease: Lease, now: datetime) -> dict[str, Any]:
    """Return a Lease that any candidate may acquire at once.

    Source:
        client-go v1.36, tools/leaderelection/leaderelection.go, tryRelease.
    """
    return _with_spec(lease, _spec("", 1, now, transitions=lease.record.transitions))


def _spec(holder: str, duration_seconds: float, now: datetime, *, transitions: int) -> dict[str, Any]:
    moment = rfc3339_micro(now)
    return {
        "holderIdentity": holder,
        # Whole seconds on the wire. If they were cut, as client-go does, others would acquire the lease too
        # early.
        "leaseDurationSeconds": math.ceil(duration_seconds),
        "acquireTime": moment,
        "renewTime": moment,
        "leaseTransitions": transitions,
    }


def _with_spec(lease: Lease, changes: dict[str, Any]) -> dict[str, Any]:
    return {**lease.raw, "spec": {**(lease.raw.get("spec") or {}), **changes}}
