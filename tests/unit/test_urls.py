"""URLs are shown without their secrets, for any URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.urls import is_http_url, shown_text, shown_url, shown_value


@pytest.mark.parametrize("url", ["http://host", "https://user:password@[::1]:8443/path"])
def test_a_url_of_http_names_a_host(url: str):
    assert is_http_url(url)


@pytest.mark.parametrize(
    "url", ["host:80", "ftp://host", "http://:80", "http://host:0", "http://host:x", "http://[::1"]
)
def test_other_texts_are_no_url_of_http(url: str):
    assert not is_http_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host:8443/path/x", "https://host:8443/path/x"),
        ("https://user:password@host/path", "https://xxxxx@host/path"),
        ("https://token@[::1]:8443", "https://xxxxx@[::1]:8443"),
        ("https://u:p@ss@host", "https://xxxxx@host"),
        ("http://u:p/w?x@host", "http://u:p/w?xxxxx"),
        ("http://u:p/w@host/path", "http://xxxxx@host/path"),
        ("http://u:p w'\"@host", "http://xxxxx@host"),
        ("https://host?token=a&b=c&d", "https://host?token=xxxxx&b=xxxxx&xxxxx"),
        ("https://host/x?query=up%7B%7D&token=a", "https://host/x?query=up%7B%7D&token=xxxxx"),
        ("https://host/#access_token=a", "https://host/#xxxxx"),
        ("user:password@host:9090", "xxxxx@host:9090"),
        ("file://./guest.wasm", "file://./guest.wasm"),
        ("guest.wasm", "guest.wasm"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_user_password_and_values(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@given(st.text(alphabet="ahtp:/?#@&= '\"\n[]", max_size=40))
def test_a_redacted_text_is_unchanged_by_a_second_redaction(text: str) -> None:
    for show in (shown_url, shown_text, shown_value):
        assert show(show(text)) == show(text)


def test_the_urls_in_a_text_are_redacted_and_the_rest_stays() -> None:
    text = 'Post "https://u:p@host/x?token=t": dial; see (http://other/) and ftp://a@b, a@b'
    assert (
        shown_text(text)
        == 'Post "https://xxxxx@host/x?token=xxxxx": dial; see (http://other/) and ftp://xxxxx@b, a@b'
    )
    odd = "http://u:p w'@host"
    assert shown_text(f"cannot reach {odd}: no", odd) == "cannot reach http://xxxxx@host: no"
