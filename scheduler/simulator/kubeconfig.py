"""The kubeconfig of a server."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

_NAME = "simulator"


def may_write(path: Path) -> bool:
    """Return whether the file does not exist or was written by `write_kubeconfig`; other files must not be overwritten."""
    try:
        content = path.read_bytes()
        return not content or bool(json.loads(content)["current-context"] == _NAME)
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError, KeyError):
        return False


def write_kubeconfig(
    path: str | Path, server: str, token: str | None, user: str, authority: bytes = b""
) -> Path:
    """Write a kubeconfig that only its owner can read; it is JSON, which is also YAML.

    Args:
        path: the file.
        server: its URL.
        token: token of its user; None if the server needs none.
        user: the user's name.
        authority: the certificate to trust, PEM; empty without TLS.
    """
    context = {"cluster": _NAME, "user": user, "namespace": "default"}
    cluster = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": context}],
        "current-context": _NAME,
    }
    target = Path(path)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return target
