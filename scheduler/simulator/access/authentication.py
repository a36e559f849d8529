"""Authentication of bearer tokens."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from scheduler.simulator.access.service_account_tokens import ServiceAccountTokens, TokenError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.simulator.access.users import User

_INVALID = "invalid bearer token"


class Tokens:
    """The tokens that a server accepts: static tokens, and tokens of ServiceAccounts.

    Attributes:
        accounts: tokens of ServiceAccounts.
    """

    def __init__(self, static: Mapping[str, User], accounts: ServiceAccountTokens) -> None:
        self._static = {
            token.encode("utf-8", "surrogateescape"): user.authenticated() for token, user in static.items()
        }
        self.accounts = accounts

    def user_of(self, token: str) -> User | None:
        """Return the user of a token; None for an invalid one."""
        try:
            return self.review(token, ())[0]
        except TokenError:
            return None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """Return the user of a token, and the audiences for which it is valid; no audiences means this server's.

        Raises:
            TokenError: the token is invalid.
        """
        shown = token.encode("utf-8", "surrogateescape")
        asking = list(audiences) or list(self.accounts.audiences)
        for known, user in self._static.items():
            if hmac.compare_digest(known, shown):
                # Static tokens have no audiences: they are valid for this server.
                meant = [one for one in asking if one in self.accounts.audiences]
                if not meant:
                    raise TokenError(_INVALID)
                return user, meant
        try:
            found = self.accounts.user_of(token, asking)
        except TokenError as error:
            raise TokenError(f"[{_INVALID}, {error}]") from error
        if found is None:
            raise TokenError(_INVALID)
        return found
