"""The accepted clients of an extender."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from scheduler.daemon.server.extender import Callers
from scheduler.http_server.messages import ServerRequest


class Shown(NamedTuple):
    certificate: bool = False
    authorization: str = ""


NOTHING, CERTIFICATE = Shown(), Shown(certificate=True)
TOKEN, WRONG = Shown(authorization="bearer  secret"), Shown(authorization="Bearer secre")
BASIC = Shown(authorization="Basic secret")
ODD = Shown(authorization="Bearer \xff\x00")


def request(shown: Shown) -> ServerRequest:
    async def read() -> bytes:
        raise AssertionError("nobody reads what is not to be answered")

    headers = {"authorization": shown.authorization} if shown.authorization else {}
    return ServerRequest("POST", "/filter", {}, headers, "10.0.0.7", shown.certificate, read)


@pytest.mark.parametrize(
    ("callers", "shown", "status"),
    [
        pytest.param(Callers(certificate=True), CERTIFICATE, 0, id="a certificate if one is required"),
        pytest.param(Callers(certificate=True), NOTHING, 403, id="nothing"),
        pytest.param(Callers(certificate=True), TOKEN, 403, id="a token if a certificate is required"),
        pytest.param(
            Callers(certificate=True), Shown(authorization="Bearer "), 403, id="no token where there is none"
        ),
        pytest.param(Callers(token=b"secret"), TOKEN, 0, id="the token"),
        pytest.param(Callers(token=b"secret"), CERTIFICATE, 401, id="a certificate if a token is required"),
        pytest.param(Callers(token=b"secret"), WRONG, 401, id="another token"),
        pytest.param(Callers(token=b"secret"), BASIC, 401, id="a password"),
        pytest.param(Callers(token=b"secret"), ODD, 401, id="bytes"),
        pytest.param(Callers(token=b"secret"), NOTHING, 401, id="no token"),
        pytest.param(Callers(certificate=True, token=b"secret"), TOKEN, 0, id="either: a token"),
        pytest.param(Callers(certificate=True, token=b"secret"), CERTIFICATE, 0, id="either: a certificate"),
        pytest.param(Callers(), CERTIFICATE, 403, id="nothing that could be shown"),
        pytest.param(Callers(), Shown(authorization="Bearer "), 403, id="nor an empty token"),
    ],
)
def test_the_accepted_callers(callers: Callers, shown: Shown, status: int) -> None:
    asked = request(shown)

    refusal = callers.refusal(asked)

    assert (0 if refusal is None else refusal.status) == status
    assert asked.is_let_in is (refusal is None)
