"""Generated certificates are valid for clients that verify everything."""

from __future__ import annotations

import ssl

import pytest

from scheduler.kube.certificates import Issued, issue
from scheduler.kube.tls import load_key_pair


def handshake(issued: Issued, name: str, trusted: bytes) -> str:
    """Let a client meet a server in memory; returns the protocol they agreed on."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(serving, issued.serving)
    trusting = ssl.create_default_context(cadata=trusted.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    return client.version() or ""


NAMES = {"dns_names": ["localhost", "kubernetes.default.svc"], "addresses": ["127.0.0.1", "::1"]}


@pytest.mark.parametrize("name", ["localhost", "kubernetes.default.svc", "127.0.0.1", "::1"])
def test_the_authority_verifies_the_server_under_each_of_its_names(name: str):
    issued = issue("server", **NAMES)

    assert handshake(issued, name, issued.authority) == "TLSv1.3"


def test_another_name_is_refused():
    issued = issue("server", **NAMES)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(issued, "example.com", issued.authority)


def test_another_authority_is_refused():
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(issue("server", **NAMES), "localhost", issue("server", **NAMES).authority)


def test_an_invalid_key_pair_is_not_loaded():
    with pytest.raises(ssl.SSLError):
        load_key_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), issue("server").serving[:100])
