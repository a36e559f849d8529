"""What goes wrong when volumes are provisioned, on demand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class ProvisioningFault:
    """Which volumes cannot be provisioned.

    Attributes:
        provisioner: of which driver; "" for all.
        node: for which selected node; "" for all, and where none is selected.
        claim: of which claim, as `namespace/name`; "" for all.
        times: how many more; None for no end.
        message: why.
    """

    provisioner: str = ""
    node: str = ""
    claim: str = ""
    times: int | None = None
    message: str = "rpc error: code = ResourceExhausted desc = out of space"


class ProvisioningFaults:
    """The faults there are now."""

    def __init__(self) -> None:
        self._faults: list[ProvisioningFault] = []

    def add(self, fault: ProvisioningFault) -> ProvisioningFault:
        """Let volumes fail from now on; returns the fault, to be removed again."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: ProvisioningFault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def hit(self, provisioner: str, node: str, claim: str) -> str:
        """Return why a volume cannot be provisioned, and count that; "" if it can be."""
        for fault in self._faults:
            asked = ((fault.provisioner, provisioner), (fault.node, node), (fault.claim, claim))
            if fault.times == 0 or any(wanted and wanted != found for wanted, found in asked):
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault.message
        return ""
