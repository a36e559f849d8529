"""The flags of what is served over HTTP, named and meant as kube-scheduler's where it has them.

Source:
    apiserver v1.36, pkg/server/options/serving.go, SecureServingOptions, and authorization.go.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

port_option = partial(typer.Option, metavar="PORT", min=0, max=65535)
file_option = partial(typer.Option, metavar="FILE")
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
    port_option(
        help="Port of HTTPS, where the API server is asked who may read what; 0 for none.",
        rich_help_panel=_PANEL,
    ),
]
HttpPort = Annotated[
    int,
    port_option(
        help="Port of plain HTTP, where everybody may read everything: for a machine of your own, or behind a "
        "proxy; 0 for none.",
        rich_help_panel=_PANEL,
    ),
]
TlsCertFile = Annotated[
    Path | None,
    file_option(
        help="Certificate of HTTPS, PEM, with its chain; read again when it changes. Without it, one is made.",
        rich_help_panel=_PANEL,
    ),
]
TlsPrivateKeyFile = Annotated[Path | None, file_option(help="Its key, PEM.", rich_help_panel=_PANEL)]
AlwaysAllowPaths = Annotated[
    str,
    typer.Option(
        help="Paths that everybody may read over HTTPS, with commas between; /* is all of them.",
        metavar="PATHS",
        rich_help_panel=_PANEL,
    ),
]
