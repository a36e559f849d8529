"""Authentication of bearer tokens, such as those of ServiceAccounts: signed JWTs; and the kubeconfig of a server.

Source:
    kube-apiserver v1.36, pkg/serviceaccount/claims.go and jwt.go.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from scheduler.errors import SchedulerError
from scheduler.tools.simulator.access.rbac import User, quoted, service_account_groups, service_account_name
from scheduler.tools.simulator.apimachinery.strategy import new_uid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.registry import Registry

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"

BOUND_RESOURCES: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
"""Objects to which a token can be bound beside its ServiceAccount: kind -> resource."""

_LEEWAY_SECONDS: Final = 60
_HALF: Final = 32  # bytes of each number of an ES256 signature


class TokenError(SchedulerError):
    """The token is invalid; the message is the client's."""


class ServiceAccountTokens:
    """Issues and reads tokens; the key is not stored.

    Attributes:
        audiences: audiences of a token by default: this server.
    """

    audiences = (ISSUER,)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._key = ec.generate_private_key(ec.SECP256R1())

    def issue(
        self,
        account: Mapping[str, Any],
        *,
        audiences: Sequence[str],
        seconds: int,
        bound_to: tuple[str, Mapping[str, Any]] | None = None,
    ) -> str:
        """Return a new token.

        Args:
            account: its ServiceAccount.
            audiences: its audiences.
            seconds: its lifetime, by the server's clock.
            bound_to: kind and object that it is bound to, beside the account.
        """
        metadata = account["metadata"]
        now = int(self._registry.clock.utc_now().timestamp())
        private: Object = {"namespace": metadata["namespace"], "serviceaccount": _reference(account)}
        if bound_to is not None:
            kind, obj = bound_to
            private[kind.lower()] = _reference(obj)
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": new_uid(self._registry.random),
            "kubernetes.io": private,
            "nbf": now,
            "sub": service_account_name(metadata["namespace"], metadata["name"]),
        }
        signed = f"{_encoded({'alg': 'ES256', 'typ': 'JWT'})}.{_encoded(claims)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

    def user_of(self, token: str, audiences: Sequence[str] = audiences) -> tuple[User, list[str]] | None:
        """Return the user of a token, and the audiences for which it is valid; None if this server did not issue it.

        Raises:
            TokenError: the token is no longer valid, or not for these audiences.
        """
        claims = self._claims(token)
        if claims is None:
            return None
        meant = [audience for audience in audiences if audience in claims["aud"]]
        if not meant:
            raise TokenError(f"token audiences {quoted(claims['aud'])} is invalid for the target audiences "
                             f"{quoted(audiences)}")  # fmt: skip
        now = self._registry.clock.utc_now().timestamp()
        if now - _LEEWAY_SECONDS > claims["exp"]:
            raise TokenError("service account token has expired")
        private: Object = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        self._check_account(namespace, account)
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        for kind, resource in BOUND_RESOURCES.items():
            bound = private.get(kind.lower())
            if bound is None:
                continue
            self._check_bound(kind, resource, namespace, bound)
            if kind != "Secret":
                extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (bound["name"],)
                extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (bound["uid"],)
        user = User(claims["sub"], account["uid"], service_account_groups(namespace), extra)
        return user.authenticated(), meant

    def _claims(self, token: str) -> Object | None:
        """Return the claims of a token that this server signed."""
        signed, _, signature = token.rpartition(".")
        head, _, body = signed.partition(".")
        try:
            raw = _plain(signature)
            if len(raw) != 2 * _HALF or msgspec.json.decode(_plain(head)).get("alg") != "ES256":
                return None
            numbers = (int.from_bytes(raw[:_HALF], "big"), int.from_bytes(raw[_HALF:], "big"))
            self._key.public_key().verify(
                encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(hashes.SHA256())
            )
            claims: Object = msgspec.json.decode(_plain(body))
        except (InvalidSignature, binascii.Error, ValueError, AttributeError):
            return None  # not a token of this server
        return claims

    def _check_account(self, namespace: str, claimed: Object) -> None:
        account = self._registry.find("serviceaccounts", claimed["name"], namespace)
        if account is None:
            raise TokenError(f'serviceaccounts "{claimed["name"]}" not found')
        uid = account["metadata"]["uid"]
        if uid != claimed["uid"]:
            raise TokenError(f"service account UID ({uid}) does not match claim ({claimed['uid']})")

    def _check_bound(self, kind: str, resource: str, namespace: str, claimed: Object) -> None:
        obj = self._registry.find(resource, claimed["name"], namespace)
        if obj is None:
            raise TokenError("service account token has been invalidated")
        uid = obj["metadata"]["uid"]
        if uid != claimed["uid"]:
            what = kind.lower()
            raise TokenError(
                f"{what} UID ({uid}) does not match service account {what} ref claim ({claimed['uid']})"
            )


def _reference(obj: Mapping[str, Any]) -> Object:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def _encoded(value: Object) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _plain(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


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


_NAME = "simulator"


def may_write(path: Path) -> bool:
    """Return whether the file does not exist or was written by `write_kubeconfig`; other files must not be overwritten."""
    try:
        content = path.read_bytes()
        return not content or bool(json.loads(content)["current-context"] == _NAME)
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError, KeyError):
        return False


def write_kubeconfig(
    path: str | Path, server: str, token: str | None, user: str, authority: bytes = b""
) -> Path:
    """Write a kubeconfig that only its owner can read; it is JSON, which is also YAML.

    Args:
        path: the file.
        server: its URL.
        token: token of its user; None if the server needs none.
        user: the user's name.
        authority: the certificate to trust, PEM; empty without TLS.
    """
    context = {"cluster": _NAME, "user": user, "namespace": "default"}
    cluster = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": context}],
        "current-context": _NAME,
    }
    target = Path(path)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return target
