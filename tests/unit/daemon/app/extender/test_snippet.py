"""The extender's section in kube-scheduler's configuration, and the serving certificate."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from scheduler.configuration.load import load, parse
from scheduler.daemon.app.extender.certificates import client_authority_in, given, kept_in, made_for
from scheduler.daemon.app.extender.pages import ExtenderAddress
from scheduler.daemon.app.extender.snippet import points_not_run, snippet
from scheduler.daemon.server.tls import KeyPair
from scheduler.engine.runtime.plugin_classes import CLASS_OF_POINT
from scheduler.errors import ConfigurationError
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.scripted_plugins import (
    Bind,
    NodeFilter,
    NodeScore,
    Permit,
    PreBind,
    PreFilter,
    Reserve,
    framework_of,
)

if TYPE_CHECKING:
    import ipaddress

    from scheduler.configuration.types import Extender
    from scheduler.engine.runtime.framework import Framework

CONFIG = Path(__file__).parents[5] / "config" / "extender.yaml"
SCORING = NodeScore("Likes", 7)


def at(url: str, *, binds: bool = False, **fields: Any) -> ExtenderAddress:
    return ExtenderAddress("::", 8443, url=url, binds=binds, **fields)


def told(
    *frameworks: Framework, url: str = "http://a:1", authority: bytes = b"", binds: bool = False
) -> Extender:
    """The extender of a snippet, as a scheduler reads it."""
    text = snippet(frameworks, at(url, binds=binds), authority)
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (found,) = parse(head + text).settings.extenders
    return found


def verbs(extender: Extender) -> tuple[str, str, str, str]:
    return extender.filter_verb, extender.preempt_verb, extender.prioritize_verb, extender.bind_verb


def test_only_the_verbs_with_plugins_in_the_profile_are_named() -> None:
    scoring = framework_of(SCORING, weights={"Likes": 2})
    assert verbs(told(scoring)) == ("", "", "prioritize", "")
    for plugin in (NodeFilter(), PreFilter()):
        assert verbs(told(framework_of(plugin))) == ("filter", "preempt", "", "")
    assert verbs(told(scoring, framework_of(NodeFilter()))) == ("filter", "preempt", "prioritize", "")
    assert verbs(told(framework_of(Bind()), binds=True)) == ("", "", "", "bind")
    with pytest.raises(ConfigurationError, match="no profile has a plugin that filters or scores"):
        told(framework_of(Bind()))


def test_the_weight_is_the_sum_of_the_weights_of_the_plugins() -> None:
    light = framework_of(SCORING, weights={"Likes": 2, "Other": 3})
    assert told(light).weight == 5
    assert told(light, framework_of(SCORING, weights={"Likes": 9})).weight == 9


def test_the_authority_is_included_if_it_is_known() -> None:
    secure = told(framework_of(NodeFilter()), url="https://a:1", authority=b"PEM")
    assert secure.enable_https
    assert secure.tls_config is not None
    assert secure.tls_config.ca_data == b"PEM"
    plain = told(framework_of(NodeFilter()), url="http://a:1", authority=b"PEM")
    assert (plain.enable_https, plain.tls_config) == (False, None)
    unknown = told(framework_of(NodeFilter()), url="https://a:1")
    assert (unknown.enable_https, unknown.tls_config) == (True, None)
    assert "trusts every server" in snippet([framework_of(NodeFilter())], at("https://a:1"))
    assert "trusts every" not in snippet([framework_of(NodeFilter())], at("http://a:1"))


def test_the_client_certificate_is_named_and_its_key_is_not_printed(tmp_path: Path) -> None:
    where = at("https://a:1", folder=tmp_path)
    callers, authority = where.callers()
    assert callers is not None
    assert (callers.certificate, callers.token, authority) == (True, b"", tmp_path / "clients.crt")

    text = snippet([framework_of(NodeFilter())], where, b"PEM")

    assert f"certFile: {tmp_path}/client.crt\n" in text
    assert f"keyFile: {tmp_path}/client.key\n" in text
    assert "Every holder of the key is accepted" in text
    assert "PRIVATE KEY" not in text


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"answers_anybody": True}, "# Every client is accepted"),
        ({"client_authority": Path("ca")}, "# Add certFile and keyFile to tlsConfig"),
        ({"token_file": Path("token")}, "kube-scheduler sends no token but a certificate"),
    ],
    ids=["any caller", "a certificate of another's", "a token"],
)
def test_the_accepted_callers_are_named(fields: dict[str, Any], note: str) -> None:
    text = snippet([framework_of(NodeFilter())], at("https://a:1", **fields))
    assert note in text
    assert "certFile:" not in text


def test_extension_points_without_a_verb_are_found() -> None:
    framework = framework_of(Permit("P"), Reserve("R"), PreBind("B"), NodeFilter("F"))
    assert points_not_run([framework, framework], binds=True) == {"permit": ["P"]}
    assert points_not_run([framework], binds=False) == {"permit": ["P"], "reserve": ["R"], "preBind": ["B"]}


def test_the_shipped_profile_shares_no_plugins_with_kube_scheduler() -> None:
    frameworks = OfflineScheduler(ClusterFile(), load(CONFIG), refresh=False).frameworks
    (framework,) = frameworks.values()
    names = {plugin.name for point in CLASS_OF_POINT for plugin in framework.plugins.at.get(point, ())}
    assert names == {"PrioritySort", "DefaultBinder", "FreeLicence", "CheapestNode"}
    assert verbs(told(framework)) == ("filter", "preempt", "prioritize", "")
    assert told(framework).weight == 5


def names_of(certificate: bytes) -> set[str]:
    found = x509.load_pem_x509_certificate(certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses: list[ipaddress.IPv4Address] = names.get_values_for_type(x509.IPAddress)  # type: ignore[assignment]
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


@pytest.mark.parametrize("host", ["extender.kube-system.svc", "10.96.0.77", "fd00::7", "a." * 40 + "example"])
def test_a_certificate_is_created_for_its_host_name_or_address(host: str) -> None:
    made = made_for(host)
    assert {host, "localhost", "127.0.0.1"} <= names_of(made.made)
    assert made.files is None
    assert b"CERTIFICATE" in made.authority


def test_a_stored_certificate_is_loaded_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    first = kept_in(folder, "extender")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert kept_in(folder, "extender") == first
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE KEY" not in before["tls.crt"] + before["ca.crt"]
    (folder / "ca.crt").unlink()
    with pytest.raises(ConfigurationError, match=r"has tls.crt and tls.key but no ca.crt"):
        kept_in(folder, "extender")


def test_the_client_certificate_is_stored_and_its_key_may_be_moved(tmp_path: Path) -> None:
    authority = client_authority_in(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"client.crt", "client.key", "clients.crt"}
    assert (tmp_path / "client.key").stat().st_mode & 0o777 == 0o600
    purpose = x509.load_pem_x509_certificate(before["client.crt"]).extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert list(purpose.value) == [ExtendedKeyUsageOID.CLIENT_AUTH]

    (tmp_path / "client.key").unlink()
    (tmp_path / "client.crt").unlink()
    assert client_authority_in(tmp_path) == authority
    assert authority.read_bytes() == before["clients.crt"]

    authority.unlink()
    (tmp_path / "client.key").write_bytes(b"PEM")
    with pytest.raises(ConfigurationError, match=r"has client.key but no client.crt and clients.crt"):
        client_authority_in(tmp_path)


def test_a_token_is_read_and_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    where = at("https://a:1", token_file=path)
    with pytest.raises(ConfigurationError, match=r"--token-file: .* cannot be read"):
        where.callers()
    path.write_text("  \n")
    with pytest.raises(ConfigurationError, match=r"--token-file: .* has no token"):
        where.callers()
    path.write_text("secret\n")
    callers, authority = where.callers()
    assert callers is not None
    assert (callers.token, callers.certificate, authority) == (b"secret", False, None)
    assert "secret" not in repr(callers)


def test_a_stored_certificate_for_another_name_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    kept_in(tmp_path, "old.example.com")
    assert caplog.records == []
    kept_in(tmp_path, "localhost")
    kept_in(tmp_path, "127.0.0.1")
    assert caplog.records == []
    kept_in(tmp_path, "new.example.com")
    (record,) = caplog.records
    assert record.getMessage() == "Certificate is not for the name it is reached by"


def test_a_given_certificate_has_an_authority_only_if_one_is_given(tmp_path: Path) -> None:
    files = KeyPair(tmp_path / "tls.crt", tmp_path / "tls.key")
    authority = tmp_path / "ca.crt"
    with pytest.raises(ConfigurationError, match=r"--tls-ca-file: .*ca.crt cannot be read"):
        given(files, authority)
    authority.write_bytes(b"PEM")
    assert given(files, authority).authority == b"PEM"
    assert given(files, None).authority == b""


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        (ExtenderAddress("::", 8443, answers_anybody=True), "https://localhost:8443"),
        (ExtenderAddress("10.0.0.7", 0, 80, answers_anybody=True), "http://10.0.0.7:80"),
        (ExtenderAddress("::1", 8443, folder=Path("kept")), "https://[::1]:8443"),
        (ExtenderAddress("::", 8443, 80, url="https://a.b/", token_file=Path("token")), "https://a.b"),
    ],
    ids=["everywhere", "an address, plain HTTP", "IPv6", "a URL of its own"],
)
def test_its_url_is_the_listening_address_or_the_given_one(address: ExtenderAddress, prefix: str) -> None:
    address.check()
    assert address.prefix == prefix
