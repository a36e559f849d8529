"""/configz: the configuration in effect, every default filled in.

Source:
    kube-scheduler v1.36, cmd/kube-scheduler/app/server.go, Run, which registers it as `componentconfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.configuration.write import to_plain

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration

_NAME = "componentconfig"
_WITHHELD = "REDACTED"


def configz(configuration: Configuration) -> bytes:
    """Return the configuration as JSON; extenders' private keys are withheld."""
    shown = to_plain(configuration)
    for extender in shown.get("extenders", ()):
        if "keyData" in extender.get("tlsConfig", {}):
            extender["tlsConfig"]["keyData"] = _WITHHELD
    return msgspec.json.encode({_NAME: shown})
