"""The accepted clients of an extender: schedulers with a client certificate, or clients with a token."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from scheduler.daemon.server.messages import ServerResponse

if TYPE_CHECKING:
    from scheduler.daemon.server.messages import ServerRequest

_WITHOUT_CERTIFICATE = (
    "a client certificate is asked for, see tlsConfig of the extender in kube-scheduler's configuration"
)
_ASKED_FOR_ONE = "a bearer token is asked for"


@dataclass(slots=True)
class Callers:
    """The accepted credentials; one of them suffices.

    Attributes:
        certificate: whether a client certificate is accepted; TLS verifies it.
        token: the accepted bearer token; b"" for none.
    """

    certificate: bool = False
    token: bytes = field(default=b"", repr=False)

    def refusal(self, request: ServerRequest) -> ServerResponse | None:
        """Return the response that rejects a request; None if it is accepted."""
        if (self.certificate and request.shows_certificate) or self._has_token(request):
            request.is_let_in = True
            return None
        problem = _WITHOUT_CERTIFICATE if self.certificate else _ASKED_FOR_ONE
        if not self.token:
            return ServerResponse(f"{problem}\n".encode(), HTTPStatus.FORBIDDEN)
        return ServerResponse(
            f"{problem}\n".encode(), HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"}
        )

    def _has_token(self, request: ServerRequest) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not self.token or scheme.lower() != "bearer":
            return False
        # Digests, so that the duration of the comparison reveals nothing about the token.
        shown, right = (
            hashlib.sha256(each).digest() for each in (token.strip().encode("latin-1"), self.token)
        )
        return hmac.compare_digest(shown, right)
