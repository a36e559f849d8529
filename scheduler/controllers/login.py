"""How kopf comes by the credentials that the rest of the scheduler uses."""

from __future__ import annotations

import kopf

from scheduler.client.credentials import Credentials


async def connection_info(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Read credentials anew, as `client.connect` does; kopf asks again when the server rejects them.

    Raises:
        ConfigurationError: something is missing or makes no sense.
    """
    credentials = Credentials(f"kubeconfig {kubeconfig}" if kubeconfig else "as a pod", kubeconfig, None)
    await credentials.load()
    scheme, _, token = (await credentials.header() or "").partition(" ")
    files = credentials.files
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=files.authority,
        insecure=not files.verifies,
        certificate_path=files.certificate,
        private_key_path=files.key,
        scheme=scheme if token else None,
        token=token or None,
        proxy_url=credentials.proxy,
    )
