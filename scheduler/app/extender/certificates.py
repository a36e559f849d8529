"""The certificate an extender serves with, and who vouches for it: given, kept in a folder, or made for one run."""

from __future__ import annotations

import ipaddress
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509

from scheduler.certificates.made import issue
from scheduler.errors import ConfigurationError, FieldError
from scheduler.server.tls import KeyPair

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.certificates.made import Issued

logger = logging.getLogger(__name__)

_CERTIFICATE, _KEY, _AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""As in a Secret of type kubernetes.io/tls."""
_COMMON_NAME = "custom-scheduler-extender"


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """What HTTPS is served with.

    Attributes:
        files: of the key pair; None if it is in memory only.
        made: the key and the certificate in memory, PEM; b"" where there are files.
        authority: who vouches for it, PEM: what clients are to trust; b"" if that is not known.
    """

    files: KeyPair | None = None
    made: bytes = b""
    authority: bytes = b""


def given(files: KeyPair, authority: Path | None) -> ServingCertificate:
    """Return a certificate that somebody else has made.

    Raises:
        ConfigurationError: the authority's file cannot be read.
    """
    return ServingCertificate(files, authority=b"" if authority is None else _read(authority))


def made_for(host: str) -> ServingCertificate:
    """Return a new certificate for a host's name or address, that is gone with the process."""
    issued = _issued(host)
    return ServingCertificate(made=issued.serving, authority=issued.authority)


def kept_in(folder: Path, host: str) -> ServingCertificate:
    """Return the certificate in a folder, so that it outlives the process; made there if there is none.

    Raises:
        ConfigurationError: the folder cannot be read or written, or holds a part only.
    """
    files, authority = KeyPair(folder / _CERTIFICATE, folder / _KEY), folder / _AUTHORITY
    there = [path.name for path in (*files, authority) if path.exists()]
    if there and len(there) < 3:
        missing = {_CERTIFICATE, _KEY, _AUTHORITY} - set(there)
        problem = f"{folder} has {' and '.join(there)} but no {' and '.join(sorted(missing))}"
        raise ConfigurationError([FieldError("--cert-dir", problem)])
    if not there:
        _write(folder, _issued(host))
        logger.info("Certificate made", extra={"folder": str(folder), "host": host})
    elif not _is_for(files.certificate, host):
        logger.warning(
            "Certificate is not for the name it is reached by",
            extra={"file": str(files.certificate), "host": host},
        )
    return ServingCertificate(files, authority=_read(authority))


def _issued(host: str) -> Issued:
    """Issue a certificate for a host, and for whoever tries it out on this machine."""
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
    """Whether a certificate names a host; one that cannot be read is told of by who serves with it."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return True
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return host in {*names.get_values_for_type(x509.DNSName), *addresses}


def _write(folder: Path, issued: Issued) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = folder / _KEY
        key.touch(mode=0o600)
        # Key and certificate are one text; each reader takes what it looks for.
        private, _, certificate = issued.serving.partition(b"-----BEGIN CERTIFICATE-----")
        key.write_bytes(private)
        (folder / _CERTIFICATE).write_bytes(b"-----BEGIN CERTIFICATE-----" + certificate)
        (folder / _AUTHORITY).write_bytes(issued.authority)
    except OSError as error:
        problem = f"a certificate cannot be kept in {folder}: {error.strerror or error}"
        raise ConfigurationError([FieldError("--cert-dir", problem)]) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("--tls-ca-file", problem)]) from error
