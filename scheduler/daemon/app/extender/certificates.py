"""The serving certificate of an extender and its authority: given, kept in a directory, or created for one run.

The directory also holds the client certificate of a scheduler, because accepted clients need one.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509

from scheduler.daemon.server.tls import KeyPair
from scheduler.errors import ConfigurationError, FieldError
from scheduler.files import read_regular
from scheduler.kube.certificates import issue

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.kube.certificates import Issued

logger = logging.getLogger(__name__)

_CERTIFICATE, _KEY, _AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""The names in a Secret of type kubernetes.io/tls."""
_CLIENT_CERTIFICATE, _CLIENT_KEY, _CLIENT_AUTHORITY = "client.crt", "client.key", "clients.crt"
_COMMON_NAME = "custom-scheduler-extender"
_CLIENT_NAME = "scheduler"


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """The certificate of the HTTPS server.

    Attributes:
        files: the files of the key pair; None if it is in memory only.
        made: the key and the certificate in memory, PEM; b"" if there are files.
        authority: the CA certificate, PEM, for clients to trust; b"" if unknown.
    """

    files: KeyPair | None = None
    made: bytes = b""
    authority: bytes = b""


def given(files: KeyPair, authority: Path | None) -> ServingCertificate:
    """Return a certificate that the user provides.

    Raises:
        ConfigurationError: the authority's file cannot be read.
    """
    return ServingCertificate(files, authority=b"" if authority is None else _read(authority))


def made_for(host: str) -> ServingCertificate:
    """Return a new certificate for a host name or address; it lasts as long as the process."""
    issued = _issued(host)
    return ServingCertificate(made=issued.serving, authority=issued.authority)


def kept_in(folder: Path, host: str) -> ServingCertificate:
    """Return the certificate in a directory, which outlasts the process; create it if absent.

    Raises:
        ConfigurationError: the directory cannot be read or written, or holds only some of the files.
    """
    names = (_CERTIFICATE, _KEY, _AUTHORITY)
    files = KeyPair(folder / _CERTIFICATE, folder / _KEY)
    if _is_there(folder, names):
        if not _is_for(files.certificate, host):
            logger.warning(
                "Certificate is not for the name it is reached by",
                extra={"file": str(files.certificate), "host": host},
            )
    else:
        _write(folder, names, _issued(host))
        logger.info("Certificate made", extra={"folder": str(folder), "host": host})
    return ServingCertificate(files, authority=_read(folder / _AUTHORITY))


def client_authority_in(folder: Path) -> Path:
    """Return the file of the CA of schedulers' certificates; create it, with a scheduler's certificate, if absent.

    Raises:
        ConfigurationError: the directory cannot be written, or holds only the scheduler's certificate.
    """
    authority = folder / _CLIENT_AUTHORITY
    if authority.exists():  # the client key is not needed here and is better removed from other hosts
        return authority
    names = (_CLIENT_CERTIFICATE, _CLIENT_KEY, _CLIENT_AUTHORITY)
    if not _is_there(folder, names):
        _write(folder, names, issue(_CLIENT_NAME, dns_names=[_CLIENT_NAME], is_client=True))
        logger.info("Certificate for schedulers made", extra={"folder": str(folder)})
    return authority


def client_pair_in(folder: Path) -> KeyPair:
    """Return the scheduler's client certificate, signed by the authority of `client_authority_in`."""
    return KeyPair(folder.absolute() / _CLIENT_CERTIFICATE, folder.absolute() / _CLIENT_KEY)


def _is_there(folder: Path, names: tuple[str, str, str]) -> bool:
    """Return whether a certificate, its key and its authority exist; raises ConfigurationError if only some do."""
    there = [name for name in names if (folder / name).exists()]
    if there and len(there) < len(names):
        missing = set(names) - set(there)
        problem = f"{folder} has {' and '.join(there)} but no {' and '.join(sorted(missing))}"
        raise ConfigurationError([FieldError("--cert-dir", problem)])
    return bool(there)


def _issued(host: str) -> Issued:
    """Issue a certificate for a host, and for tests on this machine."""
    names = {"localhost": None, socket.gethostname(): None}
    addresses = {"127.0.0.1": None}
    try:
        ipaddress.ip_address(host)
    except ValueError:
        names[host] = None
    else:
        addresses[host] = None
    return issue(_COMMON_NAME, dns_names=names, addresses=addresses)


def _is_for(path: Path, host: str) -> bool:
    """Return whether a certificate names a host; True if it cannot be read, an error that the server reports."""
    try:
        certificate = x509.load_pem_x509_certificate(read_regular(path))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return True
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return host in {*names.get_values_for_type(x509.DNSName), *addresses}


def _write(folder: Path, names: tuple[str, str, str], issued: Issued) -> None:
    certificate_name, key_name, authority_name = names
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = folder / key_name
        key.touch(mode=0o600)
        # Key and certificate are one text; each reader takes its part.
        private, _, certificate = issued.serving.partition(b"-----BEGIN CERTIFICATE-----")
        key.write_bytes(private)
        (folder / certificate_name).write_bytes(b"-----BEGIN CERTIFICATE-----" + certificate)
        (folder / authority_name).write_bytes(issued.authority)
    except OSError as error:
        for name in names:  # some of them without the others would be an error at the next start
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        problem = f"a certificate cannot be kept in {folder}: {error.strerror or error}"
        raise ConfigurationError([FieldError("--cert-dir", problem)]) from error


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("--tls-ca-file", problem)]) from error
