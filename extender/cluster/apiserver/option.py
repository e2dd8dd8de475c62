"""How an embedded API server behaves; all but the resources may be changed while it runs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from extender.cluster.apiserver.resource import Resource


@dataclass
class ServerOptions:
    """Behaviour of one server.

    ``forbidden`` has pairs of verb and qualified resource, such as ``("list", "leases.coordination.k8s.io")`` or
    ``("create", "pods/binding")``, that are answered with 403; access reviews say so as well. ``token`` is the bearer
    token asked for, None for no check. ``users`` has the names of those whose tokens a TokenReview accepts, by token,
    and ``readers`` pairs of user and path that a SubjectAccessReview allows to ``get``. ``streaming_lists`` off makes
    the server answer ``sendInitialEvents`` as releases without it do; ``progress`` off keeps bookmarks back
    that say nothing new, as a server does whose etcd reports no progress: then nothing is heard of what never changes.
    """

    bookmark_interval_seconds: float = 60.0
    watch_timeout_seconds: float = 1800.0
    streaming_lists: bool = True
    progress: bool = True
    token: str | None = None
    user: str = "system:serviceaccount:kube-system:scheduler-extender"
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    users: dict[str, str] = field(default_factory=dict)
    readers: set[tuple[str, str]] = field(default_factory=set)
    ssl_context: ssl.SSLContext | None = None
    resources: tuple[Resource, ...] = ()
    history_events: int = 100_000
