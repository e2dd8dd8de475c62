"""Requests as kube-scheduler sends them, and the keep-alive connection they are sent over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count
from random import Random
from time import perf_counter
from typing import Self
from urllib.parse import urlsplit

from benchmarks import cluster
from benchmarks.detail import detailed_node, detailed_pod, encode, without_kind
from benchmarks.workload import Cluster, Verb

_RECEIVE_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60.0
_WINDOW = 200
_MARK = b"00000000-pod-0000"


class Connection:
    """One connection to a server, kept alive."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._socket = socket.create_connection((parts.hostname, parts.port), _TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def post(self, verb: str, body: bytes) -> tuple[bytes, float]:
        """Return the answer and the seconds it took.

        Raises:
            RuntimeError: its status is not 200.
        """
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        started = perf_counter()
        self._socket.sendall(head.encode() + body)
        answer = self._receive()
        return answer, perf_counter() - started

    def _receive(self) -> bytes:
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        head = bytes(received[:end]).lower()
        if not head.startswith(b"http/1.1 200 "):
            raise RuntimeError(f"the server answered {received[:500]!r}")
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(received) < end + 4 + length:
            received += self._more()
        return bytes(received[end + 4 :])

    def _more(self) -> bytes:
        chunk = self._socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise RuntimeError("the server closed the connection")
        return chunk


def bodies(workload: Verb, size: Cluster, waiting: int) -> Iterator[bytes]:
    """Yield request bodies, each about another pod; without end, but of ``bind`` one for each ``waiting`` pod."""
    if workload.verb == "bind":
        return _binds(size, waiting)
    if workload.verb == "preempt":
        return _with_pods([_victims(workload, size)])
    if workload.whole_nodes:
        nodes = [encode(without_kind(detailed_node(node))) for node in cluster.nodes(size.nodes)]
        lists = _lists(nodes, workload.whole_nodes, workload.lists)
        return _with_pods([b'"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null' % b",".join(one) for one in lists])
    names = [b'"%b"' % cluster.node_name(place).encode() for place in range(size.nodes)]
    lists = _lists(names, workload.names, workload.lists)
    return _with_pods([b'"Nodes":null,"NodeNames":[%b]' % b",".join(one) for one in lists])


def _with_pods(rests: list[bytes]) -> Iterator[bytes]:
    """Yield bodies of the given rests in turn, each with a pod of its own."""
    pod = without_kind(detailed_pod(cluster.pending()["plain"]))
    meta = {"name": _MARK.decode(), "uid": _MARK.decode()}
    template = encode(pod | {"metadata": pod["metadata"] | meta})
    for number in count():
        mark = b"%08d-pod-0000" % number
        yield b'{"Pod":%b,%b}' % (template.replace(_MARK, mark), rests[number % len(rests)])


def _lists(items: list[bytes], length: int, lists: int) -> list[list[bytes]]:
    """Return lists that begin at different places, as the scheduler's do.

    Neighbours have changed places, because it judges nodes side by side and takes down whichever is first.
    """
    random = Random(17)
    found = []
    for number in range(lists):
        first = number * len(items) // lists
        chosen = [items[(first + place) % len(items)] for place in range(min(length, len(items)))]
        for start in range(0, len(chosen), _WINDOW):
            window = chosen[start : start + _WINDOW]
            random.shuffle(window)
            chosen[start : start + _WINDOW] = window
        found.append(chosen)
    return found


def _victims(workload: Verb, size: Cluster) -> bytes:
    """Return the victims on those nodes open to pods that have the most of them."""
    uids: dict[str, list[str]] = {
        node["metadata"]["name"]: [] for node in cluster.nodes(size.nodes) if not node["spec"]
    }
    for pod in cluster.pods(size.pods, size.nodes):
        if pod["spec"]["nodeName"] in uids:
            uids[pod["spec"]["nodeName"]].append(pod["metadata"]["uid"])
    fullest = sorted(uids, key=lambda name: (-len(uids[name]), name))[: workload.names]
    victims = {
        name: {"Pods": [{"UID": uid} for uid in uids[name][: workload.victims]], "NumPDBViolations": 0}
        for name in sorted(fullest)
    }
    return b'"NodeNameToVictims":null,"NodeNameToMetaVictims":%b' % encode(victims)


def _binds(size: Cluster, waiting: int) -> Iterator[bytes]:
    for number, pod in enumerate(cluster.waiting(waiting)):
        meta = pod["metadata"]
        yield encode(
            {
                "PodName": meta["name"],
                "PodNamespace": meta["namespace"],
                "PodUID": meta["uid"],
                "Node": cluster.node_name((number * 7 + 1) % size.nodes),
            }
        )
