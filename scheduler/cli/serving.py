"""The flags of the HTTP endpoints, named like kube-scheduler's where it has them.

Source:
    apiserver v1.36, pkg/server/options/serving.go, SecureServingOptions, and authorization.go.
"""

from __future__ import annotations

from scheduler.cli.options import file_option, option, port_option
from scheduler.daemon.server import ALWAYS_ALLOWED

_SECTION = "Serving /metrics and health"

bind_address = option(
    "--bind-address",
    default="0.0.0.0",  # noqa: S104 - probes, metrics and requests come from outside the pod
    help="Address to listen on; 0.0.0.0 and :: for all addresses.",
    metavar="ADDRESS",
    section=_SECTION,
)
secure_port = port_option(
    "--secure-port",
    default=10259,
    help="Port of HTTPS, where the API server authorizes each request; 0 for none.",
    section=_SECTION,
)
http_port = port_option(
    "--http-port",
    default=0,
    help="Port of plain HTTP without authorization: for your own machine, or behind a proxy; 0 for none.",
    section=_SECTION,
)
tls_cert_file = file_option(
    "--tls-cert-file",
    help="Certificate of HTTPS, PEM, with its chain; reloaded when it changes. Without it, one is generated.",
    section=_SECTION,
)
tls_private_key_file = file_option(
    "--tls-private-key-file", help="Private key of the certificate, PEM.", section=_SECTION
)
authorization_always_allow_paths = option(
    "--authorization-always-allow-paths",
    default=",".join(ALWAYS_ALLOWED),
    help="Comma-separated paths that need no authorization over HTTPS; /* for all paths.",
    metavar="PATHS",
    section=_SECTION,
)
board = option(
    "--board",
    is_flag=True,
    help="Serve a page at /board that shows the cluster and its pending pods; over HTTPS, with authorization for that path.",
    section=_SECTION,
)
