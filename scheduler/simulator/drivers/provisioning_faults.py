"""Faults of volume provisioning, on demand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class ProvisioningFault:
    """Volumes that cannot be provisioned.

    Attributes:
        provisioner: only of this driver; "" for all.
        node: only for this selected node; "" for all, also without a selected node.
        claim: only for this claim, `namespace/name`; "" for all.
        times: remaining number of failures; None for no end.
        message: message of the error.
    """

    provisioner: str = ""
    node: str = ""
    claim: str = ""
    times: int | None = None
    message: str = "rpc error: code = ResourceExhausted desc = out of space"


class ProvisioningFaults:
    """The active faults."""

    def __init__(self) -> None:
        self._faults: list[ProvisioningFault] = []

    def add(self, fault: ProvisioningFault) -> ProvisioningFault:
        """Add a fault, and return it, so that it can be removed."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: ProvisioningFault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def hit(self, provisioner: str, node: str, claim: str) -> str:
        """Return why a volume cannot be provisioned, and count the failure; "" if it can be."""
        for fault in self._faults:
            asked = ((fault.provisioner, provisioner), (fault.node, node), (fault.claim, claim))
            if fault.times == 0 or any(wanted and wanted != found for wanted, found in asked):
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault.message
        return ""
