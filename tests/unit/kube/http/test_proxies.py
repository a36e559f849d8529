"""The proxy that the environment names, as kubectl reads it."""

from __future__ import annotations

import pytest

from scheduler.kube.http.endpoint import proxy_of

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        pytest.param("https://10.96.0.1", "svc,10.0.0.0/8", id="of a network"),
        pytest.param("https://[fd00::1]:6443", "fd00::/8", id="of a network of IPv6"),
        pytest.param("https://10.96.0.1:6443", "10.96.0.1", id="an address"),
        pytest.param("https://10.96.0.1:6443", "10.96.0.1:6443", id="an address and a port"),
        pytest.param("https://[fd00::1]", "[fd00::1]:443", id="an address of IPv6 and a port"),
        pytest.param("https://[fd00::1]", "fd00:0::1", id="an address of IPv6, written otherwise"),
        pytest.param("https://API.corp", "x, api.Corp", id="a name"),
        pytest.param("https://api.corp:6443", "api.corp:6443", id="a name and a port"),
        pytest.param("https://api.corp", "corp", id="a domain"),
        pytest.param("https://api.corp", ".corp", id="hosts of a domain"),
        pytest.param("https://api.corp", "*.corp", id="hosts of a domain, with a star"),
        pytest.param("https://8.8.8.8", "*", id="all"),
        pytest.param("https://localhost:6443", "", id="this machine"),
        pytest.param("https://127.0.0.1:6443", "", id="the address of this machine"),
        pytest.param("https://[::1]:6443", "", id="the address of this machine in IPv6"),
    ],
)
def test_excepted_hosts_are_reached_without_a_proxy(server: str, exceptions: str) -> None:
    assert proxy_of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}) == ""


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        pytest.param("https://11.96.0.1", "10.0.0.0/8,fd00::/8", id="of no network"),
        pytest.param("https://10.96.0.1", "10.96.0.1:6443", id="another port"),
        pytest.param("https://api.corp", "api.corp:6443,api.corp:x", id="a name and another port"),
        pytest.param("https://corp", ".corp,*.corp", id="the domain itself"),
        pytest.param("https://apicorp", "corp", id="a name that ends so"),
        pytest.param("https://api.corp", ", ,/,:,[]:443,a/b,.", id="empty exceptions"),
    ],
)
def test_other_hosts_are_reached_through_the_proxy(server: str, exceptions: str) -> None:
    assert proxy_of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}) == PROXY


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"http_proxy": PROXY}, "", id="of another scheme"),
        pytest.param({"https_proxy": PROXY}, PROXY, id="small letters"),
        pytest.param({"https_proxy": "http://other", "HTTPS_PROXY": PROXY}, PROXY, id="both"),
        pytest.param({"HTTPS_PROXY": "proxy:3128"}, PROXY, id="no URL"),
        pytest.param({"HTTPS_PROXY": PROXY, "no_proxy": "api.corp"}, "", id="exceptions in small letters"),
    ],
)
def test_the_scheme_of_the_server_selects_the_proxy(environment: dict[str, str], proxy: str) -> None:
    assert proxy_of("https://api.corp", environment) == proxy
