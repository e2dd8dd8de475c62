"""Whether the service may do at the API server what ``serve`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from extender.cluster.lease import own_namespace
from extender.config import ExtenderConfiguration
from extender.doctor.api import Api
from extender.errors import ConfigurationError
from extender.framework.mirror import Mirror
from extender.framework.profile import watched_kinds
from extender.framework.registry import Registry
from extender.registration.finding import Finding, error, note
from extender.source import bind_profiles
from extender.testing.reply import Json

_REVIEWS = "/apis/authorization.k8s.io/v1"
_AT_ONCE = 8


@dataclass(frozen=True, order=True)
class Right:
    """Something that may be allowed; without ``namespace`` in all of them, without ``name`` to any object."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        qualified = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {qualified} {f'named {self.name} ' if self.name else ''}{where}"


def needed_rights(configuration: ExtenderConfiguration, namespace: str) -> list[Right]:
    """Return all that ``serve`` does in a pod of ``namespace``.

    Raises ConfigurationError when a profile cannot be bound here.
    """
    kinds = watched_kinds(*bind_profiles(Registry(), Mirror(), configuration).values())
    rights = {Right(kind.group, kind.plural, verb) for kind in kinds for verb in ("list", "watch")}
    rights |= {Right("", "pods", "get"), Right("", "pods/binding", "create")}
    if configuration.events.enabled:
        rights |= {Right("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    election = configuration.leader_election
    if election.enabled:
        lease = ("coordination.k8s.io", "leases")
        place = election.lease_namespace or namespace
        # What is created has no name yet.
        rights |= {Right(*lease, "create", place)}
        rights |= {Right(*lease, verb, place, election.lease_name) for verb in ("get", "update")}
    if configuration.management.authentication.enabled:
        rights |= {Right("authentication.k8s.io", "tokenreviews", "create")}
        rights |= {Right("authorization.k8s.io", "subjectaccessreviews", "create")}
    return sorted(rights)


async def check_rights(api: Api, configuration: ExtenderConfiguration, pods: Iterable[Json]) -> list[Finding]:
    """Return the rights that the service accounts of ``pods`` lack, or, without pods, whoever runs the doctor.

    Raises ClusterError when the API server cannot be asked.
    """
    accounts = sorted({_account(pod) for pod in pods})
    findings = []
    for user in accounts or [""]:
        try:
            rights = needed_rights(configuration, user.split(":")[2] if user else own_namespace())
        except ConfigurationError as problem:
            return [note("", f"rights: not checked: {finding}") for finding in problem.problems]
        allowed = await _review(api, user, rights)
        findings += [
            error(
                "",
                f"{user or 'whoever runs the doctor'} may not {right}, which the service does",
                "grant it: kubectl apply -k manifests/ grants all that the defaults need",
            )
            for right in rights
            if not allowed[right]
        ]
    if not accounts:
        findings.append(
            note("", "rights: checked for whoever runs the doctor, because no pod of the service was found")
        )
    return findings


def _account(pod: Json) -> str:
    namespace = pod["metadata"].get("namespace", "default")
    return f"system:serviceaccount:{namespace}:{pod['spec'].get('serviceAccountName') or 'default'}"


async def _review(api: Api, user: str, rights: list[Right]) -> dict[Right, bool]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def ask(right: Right) -> bool:
        async with turn:
            return await _is_allowed(api, user, right)

    answers = await asyncio.gather(*map(ask, rights))
    return dict(zip(rights, answers, strict=True))


async def _is_allowed(api: Api, user: str, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "verb": right.verb}
    attributes |= {"subresource": subresource} if subresource else {}
    attributes |= {"namespace": right.namespace} if right.namespace else {}
    attributes |= {"name": right.name} if right.name else {}
    spec: Json = {"resourceAttributes": attributes}
    kind = "SelfSubjectAccessReview"
    if user:
        kind = "SubjectAccessReview"
        account_namespace = user.split(":")[2]
        groups = ["serviceaccounts", f"serviceaccounts:{account_namespace}", "authenticated"]
        spec |= {"user": user, "groups": [f"system:{group}" for group in groups]}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await api.post(f"{_REVIEWS}/{kind.lower()}s", review)
    return bool((answer.get("status") or {}).get("allowed"))
