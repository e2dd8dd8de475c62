"""A stand-in for kube-scheduler: does to an extender service what kube-scheduler 1.36 does, and judges its replies so.

::

    with SchedulerClient("http://127.0.0.1:8888", weight=5) as scheduler:
        outcome = scheduler.filter(pod, nodes)
        points = scheduler.prioritize(pod, outcome.nodes).points

Pods and nodes are plain JSON in the API's own spelling, see ``extender.testing.maker``. Requests are those of
kube-scheduler byte for byte, as long as the objects' keys stand in the order the API server writes them in.
Source: pkg/scheduler/extender.go of kube-scheduler 1.36.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import httpx

from extender.testing import reply
from extender.testing.failure import ExtenderCallError
from extender.testing.reply import FilterOutcome, HostScore, Json, PrioritizeOutcome, Victims

DEFAULT_HTTP_TIMEOUT_SECONDS = 5.0
"""What kube-scheduler takes for an ``httpTimeout`` that is not set."""

_OLD_KEYS = {
    "Pod": "pod",
    "Nodes": "nodes",
    "NodeNames": "nodenames",
    "NodeNameToVictims": "nodeNameToVictims",
    "NodeNameToMetaVictims": "nodeNameToMetaVictims",
    "Pods": "pods",
    "UID": "uid",
    "NumPDBViolations": "numPDBViolations",
    "PodName": "podName",
    "PodNamespace": "podNamespace",
    "PodUID": "podUID",
    "Node": "node",
}
"""Go's names of the fields, and the keys that releases before 1.16 sent for them."""

_HTML_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What Go's encoder escapes although JSON does not ask for it."""

# Go keeps connections idle for 90 s, and two a host unless told otherwise: concurrent binds open new ones.
_POOL = httpx.Limits(max_connections=None, max_keepalive_connections=2, keepalive_expiry=90.0)


class SchedulerClient:
    """One ``extenders:`` entry of a KubeSchedulerConfiguration, as kube-scheduler calls it; safe to use from threads.

    The parameters are the entry's fields. An empty verb is one the extender does not serve. ``tls`` verifies servers
    and presents the client's certificate; without it nothing is verified, as with ``enableHTTPS`` and no CA.
    ``http_timeout_seconds`` covers a whole call; 0 stands for 5 s, a negative one for none. ``lower_case_keys`` sends
    the keys of releases before 1.16.

    A pod that names none of ``managed_resources`` does not reach the extender, and failures of an ``ignorable`` one
    count as its consent, but for a ``SchedulerPanic``.
    """

    def __init__(
        self,
        url_prefix: str,
        *,
        node_cache_capable: bool = True,
        weight: int = 1,
        managed_resources: Iterable[str] = (),
        http_timeout_seconds: float = DEFAULT_HTTP_TIMEOUT_SECONDS,
        ignorable: bool = False,
        filter_verb: str = "filter",
        prioritize_verb: str = "prioritize",
        bind_verb: str = "bind",
        preempt_verb: str = "preempt",
        tls: ssl.SSLContext | None = None,
        lower_case_keys: bool = False,
    ) -> None:
        self.url_prefix = url_prefix
        self._by_name = node_cache_capable
        self._weight = weight
        self._managed_resources = frozenset(managed_resources)
        self._ignorable = ignorable
        self._verbs = {
            "filter": filter_verb,
            "prioritize": prioritize_verb,
            "bind": bind_verb,
            "preempt": preempt_verb,
        }
        self._keys = _OLD_KEYS if lower_case_keys else {name: name for name in _OLD_KEYS}
        seconds = http_timeout_seconds or DEFAULT_HTTP_TIMEOUT_SECONDS
        self._timeout_seconds = seconds if seconds > 0 else None
        self._http = httpx.Client(
            verify=tls or False,
            limits=_POOL,
            follow_redirects=True,
            max_redirects=10,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_interested(self, pod: Json) -> bool:
        """Return whether a container or init container requests or limits a managed resource; true if none is set."""
        if not self._managed_resources:
            return True
        spec = pod.get("spec", {})
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        resources = [container.get("resources") or {} for container in containers]
        return any(
            not self._managed_resources.isdisjoint(named.get(kind) or ())
            for named in resources
            for kind in ("requests", "limits")
        )

    def filter(self, pod: Json, nodes: Sequence[Json]) -> FilterOutcome:
        """Return the nodes the extender leaves for ``pod``; raises ``ExtenderCallError`` when the attempt fails."""
        if not self._verbs["filter"] or not self.is_interested(pod):
            return FilterOutcome(list(nodes), {}, {})
        try:
            body = self._send("filter", self._encode_nodes(pod, nodes))
            return reply.read_filter(body, nodes, by_name=self._by_name, url_prefix=self.url_prefix)
        except ExtenderCallError:
            if self._ignorable:
                return FilterOutcome(list(nodes), {}, {})
            raise

    def prioritize(self, pod: Json, nodes: Sequence[Json]) -> PrioritizeOutcome:
        """Return the scores of ``nodes`` and the points they are worth.

        Raises ``ExtenderCallError``; kube-scheduler logs it at a high verbosity and goes on without points.
        """
        if not self._verbs["prioritize"] or not self.is_interested(pod):
            return reply.grade((HostScore(reply.node_name(node), 0) for node in nodes), nodes, 0)
        body = self._send("prioritize", self._encode_nodes(pod, nodes))
        return reply.read_prioritize(body, nodes, self._weight)

    def bind(self, namespace: str, name: str, uid: str, node: str) -> bool:
        """Have the extender bind a pod; return whether it is bound.

        False means that an ignorable extender failed: the default binder would try next. Raises ``ExtenderCallError``
        when the binding cycle fails.
        """
        if not self._verbs["bind"]:
            raise ExtenderCallError("unexpected empty bindVerb in extender")
        args = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
        try:
            reply.read_bind(self._send("bind", self._rename(args)))
        except ExtenderCallError:
            if self._ignorable:
                return False
            raise
        return True

    def preempt(
        self, pod: Json, victims: Mapping[str, Victims], pods_by_node: Mapping[str, Sequence[Json]]
    ) -> dict[str, Victims]:
        """Return the victims the extender allows, by node, out of the proposed ``victims``.

        ``pods_by_node`` is the scheduler's snapshot: every node, with all pods on it. Raises ``ExtenderCallError``
        when the preemption fails and ``SchedulerPanic`` when it takes kube-scheduler along; see ``read_preempt``.
        """
        if not self._verbs["preempt"]:
            raise ExtenderCallError(
                f"preempt verb is not defined for extender {self.url_prefix} but run into ProcessPreemption"
            )
        if not self.is_interested(pod):
            return dict(victims)
        try:
            body = self._send("preempt", self._encode_victims(pod, victims))
            return reply.read_preempt(body, pods_by_node, url_prefix=self.url_prefix)
        except ExtenderCallError:
            if self._ignorable:
                return dict(victims)
            raise

    def _encode_nodes(self, pod: Json, nodes: Sequence[Json]) -> Json:
        if self._by_name:
            return self._rename({"Pod": pod, "Nodes": None, "NodeNames": [reply.node_name(node) for node in nodes]})
        # Go writes null for a slice that nothing was appended to.
        return self._rename({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes or None}, "NodeNames": None})

    def _encode_victims(self, pod: Json, victims: Mapping[str, Victims]) -> Json:
        named = {}
        for node, proposed in sorted(victims.items()):
            pods = [self._rename({"UID": victim["metadata"].get("uid", "")}) for victim in proposed.pods]
            named[node] = self._rename(
                {"Pods": pods if self._by_name else proposed.pods, "NumPDBViolations": proposed.num_pdb_violations}
            )
        return self._rename(
            {
                "Pod": pod,
                "NodeNameToVictims": None if self._by_name else named,
                "NodeNameToMetaVictims": named if self._by_name else None,
            }
        )

    def _rename(self, args: Json) -> Json:
        return {self._keys[name]: value for name, value in args.items()}

    def _send(self, verb: str, args: Json) -> bytes:
        """Return the body of the reply; raises ``ExtenderCallError`` unless it comes in time with status 200."""
        action = self._verbs[verb]
        url = f"{self.url_prefix.rstrip('/')}/{action}"
        started = time.monotonic()
        try:
            response = self._http.send(_request(url, args, self._timeout_seconds), stream=True)
        except httpx.TimeoutException:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderCallError(f'Post "{url}": {late}') from None
        except httpx.RemoteProtocolError:
            raise ExtenderCallError(f'Post "{url}": EOF') from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ExtenderCallError(f'Post "{url}": {error}') from error
        try:
            if response.status_code != httpx.codes.OK:
                message = f"failed {action} with extender at URL {url}, code {response.status_code}"
                raise ExtenderCallError(message, status=response.status_code)
            return self._read(response, started)
        finally:
            response.close()

    def _read(self, response: httpx.Response, started: float) -> bytes:
        late = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        chunks = []
        try:
            for chunk in response.iter_bytes():
                if self._timeout_seconds is not None and time.monotonic() - started > self._timeout_seconds:
                    raise ExtenderCallError(late)
                chunks.append(chunk)
        except httpx.TimeoutException:
            raise ExtenderCallError(late) from None
        except httpx.HTTPError:
            raise ExtenderCallError("unexpected EOF") from None
        return b"".join(chunks)


def _request(url: str, args: Any, timeout_seconds: float | None) -> httpx.Request:
    """Return the request with Go's headers and no others; built here because a client would add its own."""
    text = json.dumps(args, ensure_ascii=False, separators=(",", ":"))
    for char, escape in _HTML_ESCAPES.items():
        text = text.replace(char, escape)
    body = text.encode()
    target = httpx.URL(url)
    headers = {
        "Host": target.netloc.decode("ascii"),
        "User-Agent": "Go-http-client/1.1",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip",
    }
    extensions = {"timeout": httpx.Timeout(timeout_seconds).as_dict()}
    return httpx.Request("POST", target, headers=headers, content=body, extensions=extensions)
