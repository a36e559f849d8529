"""HTTPS: the certificate for each client."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from scheduler.daemon.server import tls
from scheduler.daemon.server.http_server import serving
from scheduler.daemon.server.tls import KeyPair, tls_context
from scheduler.errors import ConfigurationError
from scheduler.kube.certificates import issue
from tests.unit.daemon.server.one_request import some_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.run(by=asyncio.run)

BEGIN = b"-----BEGIN CERTIFICATE-----"


def write_pair(folder: Path) -> KeyPair:
    pair = KeyPair(folder / "tls.crt", folder / "tls.key")
    issued = issue("localhost", dns_names=["localhost"])
    key, _, certificate = issued.serving.partition(BEGIN)
    pair.key.write_bytes(key)
    pair.certificate.write_bytes(BEGIN + certificate)
    (folder / "ca.crt").write_bytes(issued.authority)
    return pair


def another_key() -> bytes:
    return issue("localhost").serving.partition(BEGIN)[0]


def certificate_in(pair: KeyPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def shown_at(port: int, client: ssl.SSLContext, name: str | None = None) -> tuple[bytes, str]:
    """Return the certificate (DER) and the TLS version that a client receives."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client, server_hostname=name or "127.0.0.1"
    )
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = connection.getpeercert(binary_form=True), connection.version()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"ok")
    writer.close()
    await writer.wait_closed()
    return found[0] or b"", found[1] or ""


@asynccontextmanager
async def secure(files: KeyPair | None) -> AsyncIterator[int]:
    async with tls_context(files) as context, serving(some_pages(), "127.0.0.1", 0, context) as port:
        yield port


def test_without_files_a_certificate_for_localhost_is_created() -> None:
    async def scenario() -> tuple[bytes, str]:
        async with secure(None) as port:
            return await shown_at(port, trusting_anybody())

    der, version = asyncio.run(scenario())

    certificate = x509.load_der_x509_certificate(der)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert version == "TLSv1.3"


def test_every_process_creates_another_certificate() -> None:
    assert another_key() != another_key()


def test_the_certificate_in_the_files_is_served_and_verified(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    client = ssl.create_default_context(cafile=tmp_path / "ca.crt")

    async def scenario() -> bytes:
        async with secure(pair) as port:
            return (await shown_at(port, client, "localhost"))[0]

    assert asyncio.run(scenario()) == certificate_in(pair)


def test_the_minimum_version_is_tls_1_2() -> None:
    client = trusting_anybody()
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    async def scenario() -> str:
        async with tls_context(None) as context, serving(some_pages(), "127.0.0.1", 0, context) as port:
            assert context.minimum_version is ssl.TLSVersion.TLSv1_2
            return (await shown_at(port, client))[1]

    assert asyncio.run(scenario()) == "TLSv1.2"


async def until_logged(caplog: pytest.LogCaptureFixture, message: str) -> None:
    caplog.set_level(logging.INFO)
    while message not in caplog.text:  # noqa: ASYNC110 - the log is all there is to wait for
        await asyncio.sleep(0.01)


async def test_a_changed_certificate_is_served_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "_REREAD_SECONDS", 0.01)
    pair = write_pair(tmp_path)

    async with secure(pair) as port, asyncio.timeout(10):
        before = (await shown_at(port, trusting_anybody()))[0]
        write_pair(tmp_path)
        await until_logged(caplog, "Certificate changed")
        now = (await shown_at(port, trusting_anybody()))[0]
        assert now != before
        assert now == certificate_in(pair)


async def test_invalid_files_leave_the_certificate_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "_REREAD_SECONDS", 0.01)
    pair = write_pair(tmp_path)

    async with secure(pair) as port, asyncio.timeout(10):
        before = (await shown_at(port, trusting_anybody()))[0]
        pair.key.write_bytes(another_key())
        await until_logged(caplog, "Certificate could not be read again")
        assert (await shown_at(port, trusting_anybody()))[0] == before


async def test_a_certificate_is_read_again_after_a_time_without_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "_REREAD_SECONDS", 0.01)
    pair = write_pair(tmp_path)

    def without_descriptors(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with secure(pair) as port, asyncio.timeout(10):
        with monkeypatch.context() as crowded:
            crowded.setattr(os, "memfd_create", without_descriptors)
            await until_logged(caplog, "Certificate could not be read again")
        write_pair(tmp_path)
        await until_logged(caplog, "Certificate changed")
        assert (await shown_at(port, trusting_anybody()))[0] == certificate_in(pair)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    pair.key.write_bytes(another_key())

    refused(pair, r"--tls-cert-file: .*tls\.crt is not a certificate of the unencrypted key .*tls\.key")


def test_an_encrypted_key_is_refused_without_a_password_prompt(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    key = load_pem_private_key(pair.key.read_bytes(), None)
    secret = BestAvailableEncryption(b"secret")
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))

    refused(pair, "is not a certificate of the unencrypted key")


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    pair.key.unlink()
    os.mkfifo(pair.key)
    refused(pair, r"--tls-private-key-file: .*tls\.key cannot be read: is a FIFO")


async def test_a_fifo_of_client_authorities_is_refused_at_once(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    os.mkfifo(tmp_path / "clients.crt")

    with pytest.raises(
        ConfigurationError,
        match=r"--client-ca-file: .*clients\.crt cannot be read as certificates: is a FIFO",
    ):
        async with tls_context(pair, client_authority=tmp_path / "clients.crt"):
            pass


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    pair.key.unlink()

    refused(pair, r"--tls-private-key-file: .*tls\.key cannot be read: No such file or directory")


def refused(pair: KeyPair, told: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match=told):
            async with tls_context(pair):
                pass

    asyncio.run(scenario())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_key_is_left_open_behind(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    before = open_files()

    async with tls_context(pair):
        pass

    assert open_files() == before
