"""Authorization on a simulated API server with RBAC."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.access.security import impersonated
from tests.integration.simulator.simulator_client import PODS, Client, pod, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.tools.simulator.server import ApiServer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READ_PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
ROOT = "root"
WEB = "system:serviceaccount:default:web"


class Asking:
    """Asks as a user; what `token` shows decides as whom.

    Attributes:
        server: which is asked.
    """

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self._client = client

    async def __call__(
        self, method: str, path: str, body: Any = None, *, token: str = ROOT, **headers: str
    ) -> tuple[int, Any]:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        return await self._client.ask(method, path, body, **shown, **headers)

    async def token(self, account: str = "web", **spec: Any) -> str:
        status, answer = await self("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
        assert status == 201, answer
        return str(answer["status"]["token"])

    def allow(self, rules: list[Any], *subjects: dict[str, str], namespace: str = "") -> None:
        """Give subjects a role of their own, in one namespace or everywhere."""
        kind, where = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
        metadata = {"name": "allowed", **where}
        store = self.server.store
        store.create(f"{kind.lower()}s.rbac.authorization.k8s.io", {"metadata": metadata, "rules": rules})
        binding = {
            "metadata": metadata,
            "roleRef": {"kind": kind, "name": "allowed"},
            "subjects": list(subjects),
        }
        store.create(f"{kind.lower()}bindings.rbac.authorization.k8s.io", binding)


@asynccontextmanager
async def with_rbac(tmp_path: Path) -> AsyncIterator[Asking]:
    users = {
        "ann": User("ann", groups=("crew",)),
        "bob": User("bob", groups=("crew",)),
        "other ann": User("ann"),
    }
    async with serving(tmp_path, rbac=True, token=ROOT, users=users) as (server, client):
        await asyncio.sleep(0.01)
        server.store.create("serviceaccounts", {"metadata": {"name": "web"}})
        yield Asking(server, client)


ANN = {"kind": "User", "name": "ann"}
ACCOUNT = {"kind": "ServiceAccount", "name": "web", "namespace": "default"}


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(ANN, id="by name"),
        pytest.param({"kind": "Group", "name": "crew"}, id="by a group of theirs"),
        pytest.param({"kind": "Group", "name": "system:authenticated"}, id="as any authenticated user"),
    ],
)
async def test_a_binding_gives_its_subjects_the_rights_of_its_role(tmp_path: Path, subject: dict[str, str]):
    async with with_rbac(tmp_path) as ask:
        assert (await ask("GET", PODS, token="ann"))[0] == 403
        ask.allow([READ_PODS], subject, namespace="default")

        assert (await ask("GET", PODS, token="ann"))[0] == 200
        assert (await ask("POST", PODS, pod("a"), token="ann"))[0] == 403
        assert (await ask("GET", "/api/v1/namespaces/kube-system/pods", token="ann"))[0] == 403
        assert (await ask("GET", "/api/v1/pods", token="ann"))[0] == 403


@pytest.mark.parametrize(
    "namespace", ["default", ""], ids=["of a Role and a RoleBinding", "of a ClusterRole and its binding"]
)
async def test_rights_follow_every_change(tmp_path: Path, namespace: str):
    async with with_rbac(tmp_path) as ask:
        kind, group = ("role" if namespace else "clusterrole"), "rbac.authorization.k8s.io"
        role, binding = f"{kind}s.{group}", f"{kind}bindings.{group}"

        async def reads(user: str = "ann") -> bool:
            return bool((await ask("GET", PODS, token=user))[0] == 200)

        ask.allow([READ_PODS], ANN, namespace=namespace)
        assert await reads()
        ask.server.store.patch(role, "allowed", {"rules": []}, namespace=namespace)
        assert not await reads()
        ask.server.store.patch(role, "allowed", {"rules": [READ_PODS]}, namespace=namespace)
        assert [await reads(user) for user in ("ann", "bob", "other ann")] == [True, False, True]
        subjects = [{"kind": "Group", "name": "crew"}]
        ask.server.store.patch(binding, "allowed", {"subjects": subjects}, namespace=namespace)
        assert [await reads(user) for user in ("ann", "bob", "other ann")] == [True, True, False]
        ask.server.store.delete(role, "allowed", namespace)
        assert not await reads("bob")


async def test_a_refusal_names_the_user_the_verb_and_the_missing_role(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        ask.server.store.create(
            "rolebindings.rbac.authorization.k8s.io",
            {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "gone"}, "subjects": [ANN]},
        )
        _, answer = await ask("DELETE", f"{PODS}/a", token="ann")

        assert answer["message"] == (
            'pods "a" is forbidden: User "ann" cannot delete resource "pods" in API group "" in the namespace '
            '"default": RBAC: roles.rbac.authorization.k8s.io "gone" not found'
        )
        assert answer["details"] == {"name": "a", "kind": "pods"}


async def test_a_name_in_the_field_selector_counts_as_the_name_of_the_object(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        rule = {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]}
        ask.allow([rule], ANN)
        path = "/api/v1/namespaces/default/configmaps"

        assert (await ask("GET", f"{path}?fieldSelector=metadata.name%3Da", token="ann"))[0] == 200
        assert (await ask("GET", f"{path}?fieldSelector=metadata.name%3Db", token="ann"))[0] == 403
        assert (await ask("GET", path, token="ann"))[0] == 403


async def test_a_namespace_can_be_read_with_a_role_inside_it(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]}
        ask.allow([rule], ANN, namespace="default")

        assert (await ask("GET", "/api/v1/namespaces/default", token="ann"))[0] == 200
        assert (await ask("GET", "/api/v1/namespaces/kube-system", token="ann"))[0] == 403


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        pytest.param("", "/version", 200, id="the version for all"),
        pytest.param("", "/api", 403, id="discovery not for strangers"),
        pytest.param("ann", "/apis/apps/v1", 200, id="discovery for authenticated users"),
        pytest.param("ann", "/metrics", 403, id="other paths by roles only"),
        pytest.param("who", "/version", 401, id="an unknown token"),
    ],
)
async def test_the_default_roles_give_access_to_their_paths(
    tmp_path: Path, token: str, path: str, status: int
):
    async with with_rbac(tmp_path) as ask:
        assert (await ask("GET", path, token=token))[0] == status


async def test_a_token_names_its_account_and_its_expiry(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        token = await ask.token(expirationSeconds=600)
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        uid = ask.server.store.get("serviceaccounts", "web")["metadata"]["uid"]

        assert claims["sub"] == WEB
        assert claims["exp"] - claims["iat"] == 600
        assert claims["aud"] == ["https://kubernetes.default.svc.cluster.local"]
        assert claims["kubernetes.io"] == {
            "namespace": "default",
            "serviceaccount": {"name": "web", "uid": uid},
        }
        ask.allow([READ_PODS], ACCOUNT)
        assert (await ask("GET", PODS, token=token))[0] == 200


async def test_a_token_expires_by_the_clock_of_the_server(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        token = await ask.token(expirationSeconds=600)

        await asyncio.sleep(630)  # a minute of difference between clocks is tolerated
        assert (await ask("GET", "/version", token=token))[0] == 200
        await asyncio.sleep(40)
        assert (await ask("GET", "/version", token=token))[0] == 401
        _, review = await ask(
            "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}}
        )
        assert review["status"] == {
            "user": {},
            "error": "[invalid bearer token, service account token has expired]",
        }


async def test_a_token_is_revoked_with_its_account_even_if_another_takes_the_name(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        token = await ask.token()
        ask.server.store.delete("serviceaccounts", "web")
        assert (await ask("GET", "/version", token=token))[0] == 401
        ask.server.store.create("serviceaccounts", {"metadata": {"name": "web"}})
        assert (await ask("GET", "/version", token=token))[0] == 401


async def test_a_token_bound_to_a_pod_is_revoked_with_it(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        ask.server.store.create("pods", pod("a", serviceAccountName="web"))
        token = await ask.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "a"})
        _, who = await ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=token)
        assert who["status"]["userInfo"]["extra"]["authentication.kubernetes.io/pod-name"] == ["a"]

        ask.server.store.delete("pods", "a", grace_period_seconds=0)

        assert (await ask("GET", "/version", token=token))[0] == 401


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        pytest.param({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes", id="too short"),
        pytest.param({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds", id="too long"),
        pytest.param({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "no"}}, 404, 'pods "no" not found', id="bound to nothing"),
        pytest.param({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "a"}}, 400, "cannot bind token to object of type", id="bound to an unsupported kind"),
    ],
)  # fmt: skip
async def test_an_invalid_token_request_is_refused(tmp_path: Path, spec: Any, status: int, message: str):
    async with with_rbac(tmp_path) as ask:
        code, answer = await ask("POST", f"{ACCOUNTS}/web/token", {"spec": spec})
        assert code == status
        assert message in answer["message"]


async def test_a_token_for_another_audience_is_refused(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        token = await ask.token(audiences=["vault"])
        review = "/apis/authentication.k8s.io/v1/tokenreviews"

        assert (await ask("GET", "/version", token=token))[0] == 401
        _, here = await ask("POST", review, {"spec": {"token": token}})
        _, there = await ask("POST", review, {"spec": {"token": token, "audiences": ["vault", "x"]}})
        assert "authenticated" not in here["status"]
        assert there["status"]["authenticated"]
        assert there["status"]["audiences"] == ["vault"]
        assert there["status"]["user"]["groups"] == [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        ]


async def test_a_static_token_is_for_this_server_alone(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"

        _, here = await ask("POST", path, {"spec": {"token": "ann"}})
        _, there = await ask("POST", path, {"spec": {"token": "ann", "audiences": ["vault"]}})
        assert here["status"]["user"] == {"username": "ann", "groups": ["crew", "system:authenticated"]}
        assert there["status"] == {"user": {}, "error": "invalid bearer token"}
        assert (await ask("POST", path, {"spec": {}}))[0] == 400


async def test_a_forged_token_is_refused(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        head, body, signature = (await ask.token()).split(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        claims["sub"] = "system:serviceaccount:kube-system:default"
        forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

        for token in (f"{head}.{forged}.{signature}", f"{head}.{body}.", f"{head}.{body}", "..", "ä.b.c"):
            shown = token.encode().decode("latin-1")
            assert (await ask("GET", "/version", token=shown))[0] == 401, token


async def test_a_user_acts_as_another_only_with_the_right_to_impersonate_it(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        as_web = {"Impersonate-User": WEB}
        _, refused = await ask("POST", who, {}, token="ann", **as_web)
        assert refused["message"] == (
            'serviceaccounts "web" is forbidden: User "ann" cannot impersonate resource "serviceaccounts" in API '
            'group "" in the namespace "default"'
        )
        ask.allow(
            [{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts", "users"]}], ANN
        )

        _, answer = await ask("POST", who, {}, token="ann", **as_web)
        assert answer["status"]["userInfo"] == {
            "username": WEB,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        }
        headers = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
        status, answer = await ask("POST", who, {}, token="ann", **headers)
        assert (status, answer["details"]) == (403, {"name": "system:masters", "kind": "groups"})
        assert (await ask("GET", "/version", **{"Impersonate-Group": "crew"}))[0] == 500


def test_a_group_to_impersonate_may_contain_a_comma():
    headers = {
        "impersonate-user": ["bob"],
        "impersonate-group": ["cn=crew,dc=example", "staff"],
        "impersonate-extra-a%2fb": ["1,2", "3"],
    }

    found = impersonated(headers)

    assert found is not None
    assert found.user.groups == ("cn=crew,dc=example", "staff", "system:authenticated")
    assert found.user.extra == {"a/b": ("1,2", "3")}


async def _author(ask: Asking, *, verbs: tuple[str, ...] = ()) -> None:
    """Let ann write roles and bindings, and read pods; more verbs of roles if wanted."""
    write = {
        "verbs": ["create", "update", "patch", "get", *verbs],
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    }
    ask.allow([write, READ_PODS], ANN)


async def test_a_user_cannot_write_a_role_with_more_than_its_own_rights(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await _author(ask)
        role = {"metadata": {"name": "r"}, "rules": [READ_PODS]}
        wider = {"metadata": {"name": "r"}, "rules": [READ_PODS | {"verbs": ["get", "delete", "watch"]}]}

        assert (await ask("POST", ROLES, role, token="ann"))[0] == 201
        status, answer = await ask("PUT", f"{ROLES}/r", wider, token="ann")
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert answer["message"] == (
            'roles.rbac.authorization.k8s.io "r" is forbidden: user "ann" (groups=["crew" "system:authenticated"]) '
            "is attempting to grant RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}'
        )
        assert answer["details"] == {"name": "r", "group": "rbac.authorization.k8s.io", "kind": "roles"}
        assert (await ask("PUT", f"{ROLES}/r", wider))[0] == 200, "system:masters may"
        label = {"metadata": {"name": "r", "finalizers": ["x.io/keep"]}, "rules": wider["rules"]}
        assert (await ask("PUT", f"{ROLES}/r", label, token="ann"))[0] == 200, "nothing is granted by that"


async def test_a_user_cannot_bind_a_role_with_more_than_its_own_rights(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await _author(ask)
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [ANN],
        }

        status, answer = await ask("POST", BINDINGS, binding, token="ann")
        assert status == 403
        assert "is attempting to grant RBAC permissions not currently held:\n" in answer["message"]
        nowhere = binding | {"roleRef": {"kind": "Role", "name": "gone"}}
        assert (await ask("POST", BINDINGS, nowhere, token="ann"))[0] == 404
        ask.server.store.create(
            "roles.rbac.authorization.k8s.io", {"metadata": {"name": "own"}, "rules": [READ_PODS]}
        )
        own = binding | {"roleRef": {"kind": "Role", "name": "own"}}
        assert (await ask("POST", BINDINGS, own, token="ann"))[0] == 201


async def test_rights_cannot_be_granted_after_an_upgrade_either(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await _author(ask)
        await ask.server.stop()
        ask.server.upgrade("1.37")
        await ask.server.start()
        wider = {"metadata": {"name": "r"}, "rules": [READ_PODS | {"verbs": ["delete"]}]}

        assert (await ask("POST", ROLES, wider, token="ann"))[0] == 403


async def test_the_verbs_escalate_and_bind_lift_these_limits(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await _author(ask, verbs=("escalate", "bind"))
        role = {
            "metadata": {"name": "r"},
            "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        }
        binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [ANN]}

        assert (await ask("POST", ROLES, role, token="ann"))[0] == 201
        assert (await ask("POST", BINDINGS, binding, token="ann"))[0] == 201


async def test_only_a_user_with_all_rights_aggregates_roles(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await _author(ask)
        selectors = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}
        role = {"metadata": {"name": "all"}, "aggregationRule": selectors}

        _, answer = await ask("POST", f"{RBAC}/clusterroles", role, token="ann")
        assert answer["message"].endswith("must have cluster-admin privileges to use the aggregationRule")
        assert (await ask("POST", f"{RBAC}/clusterroles", role))[0] == 201
        part = {"metadata": {"name": "part", "labels": {"x": "y"}}, "rules": [READ_PODS]}
        ask.server.store.create("clusterroles.rbac.authorization.k8s.io", part)
        await asyncio.sleep(0.01)
        assert (await ask("GET", f"{RBAC}/clusterroles/all"))[1]["rules"] == [READ_PODS]


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        pytest.param(ROLES, {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, ["rules[0].verbs"], id="no verbs"),
        pytest.param(ROLES, {"rules": [{"verbs": ["get"]}]}, ["rules[0].apiGroups", "rules[0].resources"], id="a rule about nothing"),
        pytest.param(ROLES, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, ["rules[0].nonResourceURLs"], id="paths in a namespace"),
        pytest.param(f"{RBAC}/clusterroles", {"rules": [READ_PODS | {"nonResourceURLs": ["/x"]}]}, ["rules[0].nonResourceURLs"], id="paths and resources in one"),
        pytest.param(f"{RBAC}/clusterroles", {"aggregationRule": {}}, ["aggregationRule.clusterRoleSelectors"], id="an empty aggregation"),
        pytest.param(BINDINGS, {"roleRef": {"kind": "User", "name": "x"}}, ["roleRef.kind"], id="bound to no role"),
        pytest.param(f"{RBAC}/clusterrolebindings", {"roleRef": {"kind": "Role", "name": "x"}}, ["roleRef.kind"], id="a Role bound everywhere"),
        pytest.param(BINDINGS, {"roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "Pod", "name": "x"}]}, ["subjects[0].kind"], id="an unsupported subject"),
        pytest.param(f"{RBAC}/clusterrolebindings", {"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]}, ["subjects[0].namespace"], id="an account of no namespace"),
    ],
)  # fmt: skip
async def test_an_invalid_role_or_binding_is_refused(tmp_path: Path, path: str, body: Any, fields: list[str]):
    async with with_rbac(tmp_path) as ask:
        status, answer = await ask("POST", path, {"metadata": {"name": "system:x"}, **body})
        assert status == 422, answer
        assert [cause["field"] for cause in answer["details"]["causes"]] == fields


async def test_the_role_of_a_binding_is_immutable(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        ask.allow([READ_PODS], ANN, namespace="default")
        other = {
            "metadata": {"name": "allowed"},
            "roleRef": {"kind": "Role", "name": "other"},
            "subjects": [ANN],
        }
        status, answer = await ask("PUT", f"{BINDINGS}/allowed", other)

        assert status == 422
        assert "cannot change roleRef" in answer["message"]


def review(**attributes: str) -> dict[str, Any]:
    return {"spec": {"user": "ann", "groups": ["crew"], "resourceAttributes": attributes}}


async def test_access_reviews_have_the_result_of_the_request_itself(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        ask.allow([READ_PODS], {"kind": "Group", "name": "crew"}, namespace="default")
        reviews = "/apis/authorization.k8s.io/v1"
        here, there = (review(verb="get", resource="pods", namespace=name) for name in ("default", "x"))

        _, answer = await ask("POST", f"{reviews}/subjectaccessreviews", here)
        assert answer["status"] == {
            "allowed": True,
            "reason": 'RBAC: allowed by RoleBinding "allowed/default" of Role "allowed" to Group "crew"',
        }
        assert answer["spec"] == here["spec"]
        _, answer = await ask("POST", f"{reviews}/subjectaccessreviews", there)
        assert answer["status"] == {"allowed": False}
        own = {"spec": {"resourceAttributes": here["spec"]["resourceAttributes"]}}
        _, answer = await ask("POST", f"{reviews}/selfsubjectaccessreviews", own, token="ann")
        assert answer["status"]["allowed"]
        local = f"{reviews}/namespaces/default/localsubjectaccessreviews"
        assert (await ask("POST", local, here))[1]["status"]["allowed"]
        assert (await ask("POST", local, there))[0] == 422
        assert (await ask("POST", f"{reviews}/subjectaccessreviews", {"spec": {"user": "ann"}}))[0] == 422
        assert (await ask("GET", f"{reviews}/subjectaccessreviews"))[0] == 405
        assert (await ask("GET", f"{reviews}/subjectaccessreviews?watch=1"))[0] == 405
        asked = {"spec": {"namespace": "default"}}
        _, answer = await ask("POST", f"{reviews}/selfsubjectrulesreviews", asked, token="ann")
        assert READ_PODS in answer["status"]["resourceRules"]
        assert answer["status"]["incomplete"] is False


async def test_without_rbac_reviews_permit_everything(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        _, answer = await client.ask("POST", path, review(verb="delete", resource="nodes"))
        assert answer["status"] == {"allowed": True}


async def test_every_namespace_has_a_service_account_until_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with serving(tmp_path, rbac=True, controllers=True) as (server, _):
        server.store.create("namespaces", {"metadata": {"name": "shop"}})
        await asyncio.sleep(0.01)
        server.store.delete("serviceaccounts", "default", "shop")
        await asyncio.sleep(0.01)
        assert server.store.find("serviceaccounts", "default", "shop") is not None

        server.store.patch("namespaces", "shop", {"metadata": {"finalizers": ["x.io/keep"]}})
        server.store.delete("namespaces", "shop")
        await asyncio.sleep(5)
        assert server.store.list("serviceaccounts", namespace="shop") == []
        assert caplog.messages == [], "nothing is tried in a namespace that ends"
        server.store.patch("namespaces", "shop", {"metadata": {"finalizers": []}})
        await asyncio.sleep(5)
        assert server.store.find("namespaces", "shop") is None


async def test_each_request_is_logged_with_its_user(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        await ask("GET", PODS, token="ann")
        await ask("GET", PODS, **{"Impersonate-User": "bob"})
        await ask("GET", PODS, token="wrong")

        assert [request.user for request in ask.server.requests][-3:] == ["ann", "bob", ""]


async def test_grants_are_recorded_as_used_one_by_one_and_refusals_are_kept(tmp_path: Path):
    async with with_rbac(tmp_path) as ask:
        ask.allow([READ_PODS, {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}], ANN)
        grants = ask.server.grants
        await ask("GET", PODS, token="ann")
        await ask(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review(verb="get", resource="pods")
        )
        await ask("DELETE", f"{PODS}/a", token="ann")

        left = grants.unused("ClusterRole/allowed")
        assert [(one.verb, one.resource, one.path) for one in left] == [
            ("get", "", "/metrics"),
            ("get", "pods", ""),
        ]
        assert [(grant.role, grant.permission.verb) for grant in grants.used("ann")] == [
            ("ClusterRole/allowed", "list")
        ]
        assert [(refusal.deed.verb, refusal.deed.name) for refusal in grants.refused_to("ann")] == [
            ("delete", "a")
        ]


async def test_discovery_lists_the_verbs_of_reviews(tmp_path: Path):
    async with serving(tmp_path) as (_, client):
        _, found = await client.ask("GET", "/apis/authorization.k8s.io/v1")

        assert found["resources"][0] == {
            "name": "localsubjectaccessreviews",
            "singularName": "localsubjectaccessreview",
            "namespaced": True,
            "kind": "LocalSubjectAccessReview",
            "verbs": ["create"],
        }
        assert len(found["resources"]) == 4


async def test_an_account_keeps_its_identity_even_without_rbac(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.store.create("serviceaccounts", {"metadata": {"name": "web"}})
        _, made = await client.ask("POST", f"{ACCOUNTS}/web/token", {})
        who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        bearer = f"Bearer {made['status']['token']}"

        assert (await client.ask("POST", who, {}))[1]["status"]["userInfo"]["username"] == "admin"
        _, answer = await client.ask("POST", who, {}, Authorization=bearer)
        assert answer["status"]["userInfo"]["username"] == WEB
        assert (await client.ask("GET", PODS, Authorization=bearer))[0] == 200


CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
DEVICE = {"driver": "gpu.example.com", "pool": "n1", "device": "d0"}
ALLOCATION = {"devices": {"results": [{"request": "gpu", **DEVICE}]}}


@pytest.mark.parametrize(
    ("status", "deed", "problem"),
    [
        pytest.param(
            {"allocation": ALLOCATION},
            {"verbs": ["patch"], "resources": ["resourceclaims/binding"]},
            "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
            'resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: '
            'User "ann" cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster '
            "scope",
            id="an_allocation",
        ),
        pytest.param(
            {"devices": [DEVICE]},
            {"verbs": ["arbitrary-node:patch"], "resources": ["resourceclaims/driver"]},
            'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            'verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: '
            'User "ann" cannot arbitrary-node:patch resource "resourceclaims/driver" in API group "resource.k8s.io" '
            'in the namespace "default"',
            id="the_status_of_a_device",
        ),
    ],
)
async def test_the_status_of_a_claim_needs_more_rights_than_its_update(
    tmp_path: Path, status: Any, deed: Any, problem: str
):
    async with with_rbac(tmp_path) as ask:
        store = ask.server.store
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        store.create("resourceclaims", claim)
        if "devices" in status:
            patch = {"status": {"allocation": ALLOCATION}}
            store.patch("resourceclaims", "c", patch, subresource="status")
        of_group = {"apiGroups": ["resource.k8s.io"]}
        rules = [{"verbs": ["patch"], "resources": ["resourceclaims/status"], **of_group}]
        ask.allow(rules, ANN)
        merge = {"Content-Type": "application/merge-patch+json"}
        answer = await ask("PATCH", f"{CLAIM}/status", {"status": status}, token="ann", **merge)
        assert answer[0] == 422
        assert answer[1]["message"] == f'ResourceClaim.resource.k8s.io "c" is invalid: {problem}'

        patch = {"rules": [*rules, {**deed, **of_group}]}
        store.patch("clusterroles.rbac.authorization.k8s.io", "allowed", patch)
        code, _ = await ask("PATCH", f"{CLAIM}/status", {"status": status}, token="ann", **merge)
        assert code == 200
