"""Requests to the API server by the names that authorization has for them."""

from __future__ import annotations

import pytest

from extender.cluster.action import action_of
from extender.model.kind import KINDS

CASES = [
    ("GET", "/api/v1/nodes", False, ("list", "nodes")),
    ("GET", "/api/v1/nodes", True, ("watch", "nodes")),
    ("GET", "/api/v1/namespaces", False, ("list", "namespaces")),
    ("GET", "/api/v1/namespaces/default", False, ("get", "namespaces")),
    ("GET", "/api/v1/namespaces/default/pods/p", False, ("get", "pods")),
    ("GET", "/api/v1/namespaces/pods/pods", False, ("list", "pods")),
    ("POST", "/api/v1/namespaces/default/pods/p/binding", False, ("create", "pods/binding")),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l", False, ("update", "leases")),
    ("POST", "/apis/events.k8s.io/v1/namespaces/default/events", False, ("create", "events")),
    ("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e", False, ("patch", "events")),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", False, ("create", "tokenreviews")),
    ("DELETE", "/api/v1/nodes/n", False, ("delete", "nodes")),
]


@pytest.mark.parametrize(("method", "path", "watch", "action"), CASES, ids=[" ".join(case[:2]) for case in CASES])
def test_a_request_has_a_verb_and_a_resource(method: str, path: str, watch: bool, action: tuple[str, str]) -> None:
    assert action_of(method, path, watch=watch) == action


def test_every_kind_that_is_watched_is_named_by_its_plural() -> None:
    for kind in KINDS:
        assert action_of("GET", kind.path, watch=True) == ("watch", kind.plural)
