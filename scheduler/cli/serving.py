"""The flags of what is served over HTTP, named and meant as kube-scheduler's where it has them.

Source:
    apiserver v1.36, pkg/server/options/serving.go, SecureServingOptions, and authorization.go.
"""

from __future__ import annotations

from scheduler.cli.options import file_option, option, port_option
from scheduler.server import ALWAYS_ALLOWED

_SECTION = "Serving /metrics and health"

bind_address = option(
    "--bind-address",
    default="0.0.0.0",  # noqa: S104 - a pod is probed, scraped and asked from outside
    help="Address to listen on; 0.0.0.0 and :: are all there are.",
    metavar="ADDRESS",
    section=_SECTION,
)
secure_port = port_option(
    "--secure-port",
    default=10259,
    help="Port of HTTPS, where the API server is asked who may read what; 0 for none.",
    section=_SECTION,
)
http_port = port_option(
    "--http-port",
    default=0,
    help="Port of plain HTTP, where everybody may read everything: for a machine of your own, or behind a proxy; "
    "0 for none.",
    section=_SECTION,
)
tls_cert_file = file_option(
    "--tls-cert-file",
    help="Certificate of HTTPS, PEM, with its chain; read again when it changes. Without it, one is made.",
    section=_SECTION,
)
tls_private_key_file = file_option("--tls-private-key-file", help="Its key, PEM.", section=_SECTION)
authorization_always_allow_paths = option(
    "--authorization-always-allow-paths",
    default=",".join(ALWAYS_ALLOWED),
    help="Paths that everybody may read over HTTPS, with commas between; /* is all of them.",
    metavar="PATHS",
    section=_SECTION,
)
board = option(
    "--board",
    is_flag=True,
    help="Serve a page at /board that shows the cluster, what waits and why; over HTTPS to those who may get that path.",
    section=_SECTION,
)
