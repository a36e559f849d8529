"""Real node exporters, each in a network namespace of its own: one loopback interface is busy, another is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.binaries import needed_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE = "lo"
TRAFFIC_SECONDS = 120
"""After which the traffic ends by itself, whatever became of the test."""

_TRAFFIC = f"""
import fcntl, socket, struct, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
IFF_UP, SIOCSIFFLAGS = 1, 0x8914
fcntl.ioctl(out, SIOCSIFFLAGS, struct.pack("16sH14x", b"{DEVICE}", IFF_UP))
for _ in range({TRAFFIC_SECONDS} * 20):
    try:
        out.sendto(bytes(1000), ("127.0.0.1", 9))
    except ConnectionRefusedError:
        pass  # told of the packet before: nobody listens, and nobody needs to
    time.sleep(0.05)
"""
# The socket is made outside the namespace, where Prometheus can reach it, and handed in as systemd does.
_SERVE = "LISTEN_FDS=1 LISTEN_PID=$$ exec"
_FIRST_FD = 3


@contextmanager
def node_exporter(*, busy: bool) -> Iterator[int]:
    """Run one; yields its port on loopback. With `busy`, about 20 KB/s cross its interface."""
    exporter = needed_binary("prometheus-node-exporter", "Debian's package prometheus-node-exporter")
    serve = f"{_SERVE} {exporter} --web.systemd-socket --collector.netdev.device-exclude='^$'"
    traffic = ["sh", "-c", f'"$0" -c "$1" & {serve}', sys.executable, _TRAFFIC]
    command = [*_new_network(), *(traffic if busy else ["sh", "-c", serve])]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hand_in() -> None:
            os.setsid()  # to be ended with what it starts
            os.dup2(listening.fileno(), _FIRST_FD)

        silent = subprocess.DEVNULL
        running = subprocess.Popen(
            command,
            stdout=silent,
            stderr=silent,
            pass_fds=(_FIRST_FD,),
            preexec_fn=hand_in,  # noqa: PLW1509 - before any thread
        )
        try:
            yield int(listening.getsockname()[1])
        finally:
            os.killpg(running.pid, 15)
            running.wait()


def _new_network() -> list[str]:
    """Return what runs a command in a new network namespace; the test is skipped where that is not permitted."""
    unshare = needed_binary("unshare", "util-linux")
    for options in (["--net"], ["--user", "--map-root-user", "--net"]):
        if subprocess.run([unshare, *options, "true"], capture_output=True, check=False).returncode == 0:
            return [unshare, *options]
    pytest.skip("network namespaces are not permitted here")
