"""The flags of what is served over HTTP, named and meant as kube-scheduler's where it has them.

Source:
    apiserver v1.36, pkg/server/options/serving.go, SecureServingOptions, and authorization.go.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Serving /metrics and health"

BindAddress = Annotated[
    str,
    typer.Option(
        help="Address to listen on; 0.0.0.0 and :: are all there are.",
        metavar="ADDRESS",
        rich_help_panel=_PANEL,
    ),
]
SecurePort = Annotated[
    int,
    typer.Option(
        help="Port of HTTPS, where the API server is asked who may read what; 0 for none.",
        metavar="PORT",
        min=0,
        max=65535,
        rich_help_panel=_PANEL,
    ),
]
HttpPort = Annotated[
    int,
    typer.Option(
        help="Port of plain HTTP, where everybody may read everything: for a machine of your own, or behind a "
        "proxy; 0 for none.",
        metavar="PORT",
        min=0,
        max=65535,
        rich_help_panel=_PANEL,
    ),
]
TlsCertFile = Annotated[
    Path | None,
    typer.Option(
        help="Certificate of HTTPS, PEM, with its chain; read again when it changes. Without it, one is made.",
        metavar="FILE",
        rich_help_panel=_PANEL,
    ),
]
TlsPrivateKeyFile = Annotated[
    Path | None, typer.Option(help="Its key, PEM.", metavar="FILE", rich_help_panel=_PANEL)
]
AlwaysAllowPaths = Annotated[
    str,
    typer.Option(
        help="Paths that everybody may read over HTTPS, with commas between; /* is all of them.",
        metavar="PATHS",
        rich_help_panel=_PANEL,
    ),
]
