"""Validation rules of extenders, beyond the types.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/validation/validation.go, validateExtenders; the rules of
    TLS: client-go, transport/transport.go, TLSConfigFor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scheduler.errors import FieldError
from scheduler.objects.resource_names import is_extended_resource_name
from scheduler.objects.wording import entry, quoted, was
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.configuration.types import Extender, ExtenderTLS

_MAX_SCORE = 100  # the maximum score of an extender, on the scale of plugins
_MAX_TOTAL_SCORE = 2**63 - 1  # the sum of scores is an int64


def faults(extenders: Sequence[Extender]) -> Iterator[FieldError]:
    """Yield the errors of the extenders, of each one and of their combination."""
    if sum(each.weight for each in extenders if each.prioritize_verb) * _MAX_SCORE > _MAX_TOTAL_SCORE:
        yield FieldError("extenders", "the weights are so large that the sum of scores could overflow")
    owners: dict[str, str] = {}  # resource name -> the extender that manages it
    binder = ""
    for i, extender in enumerate(extenders):
        path = entry("extenders", i)
        yield from _faults_of_one(extender, path)
        if extender.bind_verb and binder:
            yield FieldError(f"{path}.bindVerb", f"only one extender can bind, {binder} does already")
        binder = binder or (path if extender.bind_verb else "")
        for j, resource in enumerate(extender.managed_resources):
            name_path = f"{entry(f'{path}.managedResources', j)}.name"
            if not is_extended_resource_name(resource.name):
                yield FieldError(
                    name_path,
                    f"must be the name of an extended resource as in example.com/gpu, {was(resource.name)}",
                )
            elif resource.name in owners:
                yield FieldError(
                    name_path, f"{quoted(resource.name)} is managed by {owners[resource.name]} already"
                )
            else:
                owners[resource.name] = path


def _faults_of_one(extender: Extender, path: str) -> Iterator[FieldError]:
    if not extender.url_prefix:
        yield FieldError(f"{path}.urlPrefix", "is missing")
    elif not _is_http_url(extender.url_prefix):
        yield FieldError(
            f"{path}.urlPrefix",
            f"must be an http:// or https:// address, {was(shown_url(extender.url_prefix))}",
        )
    if extender.prioritize_verb and extender.weight <= 0:
        yield FieldError(
            f"{path}.weight",
            f"must be at least 1 for an extender with a prioritizeVerb, was {extender.weight}",
        )
    if extender.http_timeout.nanoseconds < 0:
        yield FieldError(f"{path}.httpTimeout", f"must not be negative, was {extender.http_timeout}")
    if extender.tls_config is not None:
        yield from _tls_faults(extender.tls_config, f"{path}.tlsConfig")


def _tls_faults(tls: ExtenderTLS, path: str) -> Iterator[FieldError]:
    if tls.insecure and (tls.ca_file or tls.ca_data):
        yield FieldError(f"{path}.insecure", "cannot be combined with caFile or caData")
    has_cert, has_key = bool(tls.cert_file or tls.cert_data), bool(tls.key_file or tls.key_data)
    if has_cert and not has_key:
        yield FieldError(path, "a client certificate needs its key: keyFile or keyData")
    if has_key and not has_cert:
        yield FieldError(path, "a client key needs its certificate: certFile or certData")


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port, an unfinished IPv6 address
        return False
