"""Who may ask an extender: a scheduler that shows a certificate, or whoever brings a token."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from scheduler.server.messages import Answer

if TYPE_CHECKING:
    from scheduler.server.messages import Request

_WITHOUT_CERTIFICATE = (
    "a client certificate is asked for, see tlsConfig of the extender in kube-scheduler's configuration"
)
_ASKED_FOR_ONE = "a bearer token is asked for"


@dataclass(slots=True)
class Callers:
    """Who is answered: whoever shows one of these.

    Attributes:
        certificate: whether a client's certificate is one of them; what it must be, TLS knows.
        token: a bearer token that is one; b"" for none.
    """

    certificate: bool = False
    token: bytes = field(default=b"", repr=False)

    def refusal(self, request: Request) -> Answer | None:
        """Say why a request is not answered; None if it is."""
        if (self.certificate and request.shows_certificate) or self._has_token(request):
            request.is_let_in = True
            return None
        problem = _WITHOUT_CERTIFICATE if self.certificate else _ASKED_FOR_ONE
        if not self.token:
            return Answer(f"{problem}\n".encode(), HTTPStatus.FORBIDDEN)
        return Answer(
            f"{problem}\n".encode(), HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"}
        )

    def _has_token(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not self.token or scheme.lower() != "bearer":
            return False
        # Digests, so that how long it takes tells nothing of how much of it is right.
        shown, right = (
            hashlib.sha256(each).digest() for each in (token.strip().encode("latin-1"), self.token)
        )
        return hmac.compare_digest(shown, right)
