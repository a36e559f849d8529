"""How kopf comes by the credentials that the rest of the scheduler uses."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopf

from scheduler.client.credentials import Credentials

if TYPE_CHECKING:
    from scheduler.client.login import Pem


async def connection_info(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Read credentials anew, as `client.connect` does; kopf asks again when the server rejects them.

    Raises:
        ConfigurationError: something is missing or makes no sense.
    """
    credentials = Credentials(f"kubeconfig {kubeconfig}" if kubeconfig else "as a pod", kubeconfig, None)
    await credentials.load()
    login = credentials.login
    scheme, _, token = (login.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=login.server,
        insecure=not login.verifies,
        **_pem("ca", login.authority),
        **_pem("certificate", login.certificate),
        **_pem("private_key", login.key),
        scheme=scheme if token else None,
        token=token or None,
        proxy_url=credentials.proxy or None,
    )


def _pem(what: str, pem: Pem | None) -> dict[str, Any]:
    """Return what kopf calls a file, or what stands in none, which it wants in base64."""
    if pem is None:
        return {}
    return {f"{what}_path": pem} if isinstance(pem, Path) else {f"{what}_data": base64.b64encode(pem)}
