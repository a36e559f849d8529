"""Generates certificates for servers that have none."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable

_VALID = timedelta(days=3650)
"""The certificates are lost with the process that generated them, so an earlier expiry has no use."""


class Issued(NamedTuple):
    """A serving certificate and its authority.

    Attributes:
        authority: PEM certificate of the authority, which clients must trust.
        serving: PEM key and certificate of the server.
    """

    authority: bytes
    serving: bytes


def issue(
    host: str, *, dns_names: Iterable[str] = (), addresses: Iterable[str] = (), is_client: bool = False
) -> Issued:
    """Generate an authority, and a certificate that it signs for a server; the authority's key is discarded at once.

    Args:
        host: common name.
        dns_names: alternative DNS names.
        addresses: alternative IP addresses.
        is_client: whether the certificate is for a client instead of a server.
    """
    authority_key, authority_name = ec.generate_private_key(ec.SECP256R1()), _name(f"{host}-ca")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if is_client else ExtendedKeyUsageOID.SERVER_AUTH
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(host), authority_name, key)
        .add_extension(_alternative_names(dns_names, addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(
        authority.public_bytes(Encoding.PEM), serving=private + certificate.public_bytes(Encoding.PEM)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative_names(dns_names: Iterable[str], addresses: Iterable[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    return x509.SubjectAlternativeName(names)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks of clients differ
        .not_valid_after(now + _VALID)
    )
