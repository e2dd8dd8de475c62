"""The least a Python extender can do: decode, and answer in kind. ``API_URL`` is where it sends bindings to."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
import uvicorn
import uvloop
from msgspec import Raw

from benchmarks.child import say, until, wait_for_end


class _NodeList(msgspec.Struct, gc=False):
    items: list[Raw] | None = None


class _Args(msgspec.Struct, gc=False):
    Pod: Raw
    Nodes: _NodeList | None = None
    NodeNames: list[str] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    UID: str


class _MetaVictims(msgspec.Struct, gc=False):
    Pods: list[_MetaPod]
    NumPDBViolations: int


class _PreemptArgs(msgspec.Struct, gc=False):
    Pod: Raw
    NodeNameToMetaVictims: dict[str, _MetaVictims]


class _BindArgs(msgspec.Struct, gc=False):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class _Metadata(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Metadata


class _HostScore(msgspec.Struct, gc=False):
    Host: str
    Score: int


_LEARNT_BYTES = 30 * 1024 * 1024

_args = msgspec.json.Decoder(_Args)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_bind_args = msgspec.json.Decoder(_BindArgs)
_node = msgspec.json.Decoder(_Node)
_encode = msgspec.json.Encoder().encode


class Floor:
    """An ASGI application that keeps every node and scores all alike."""

    def __init__(self, api_url: str, session: aiohttp.ClientSession) -> None:
        self._api_url = api_url
        self._session = session

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        chunks, more = [], True
        while more:
            message = await receive()
            chunks.append(message["body"])
            more = message["more_body"]
        body = await self._answer(scope["path"], b"".join(chunks))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: str, body: bytes) -> bytes:
        if path == "/filter":
            return _filter(_args.decode(body))
        if path == "/prioritize":
            return _prioritize(_args.decode(body))
        if path == "/preempt":
            return _encode({"NodeNameToMetaVictims": _preempt_args.decode(body).NodeNameToMetaVictims})
        return await self._bind(_bind_args.decode(body))

    async def _bind(self, args: _BindArgs) -> bytes:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args.PodName, "namespace": args.PodNamespace, "uid": args.PodUID},
            "target": {"kind": "Node", "name": args.Node},
        }
        url = f"{self._api_url}/api/v1/namespaces/{args.PodNamespace}/pods/{args.PodName}/binding"
        headers = {"Content-Type": "application/json"}
        async with self._session.post(url, data=_encode(binding), headers=headers) as response:
            await response.read()
            return _encode({"Error": "" if response.status == 201 else f"status {response.status}"})


def _filter(args: _Args) -> bytes:
    nodes: Any = None if args.Nodes is None else {"metadata": {}, "items": args.Nodes.items}
    rest = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
    return _encode({"Nodes": nodes, "NodeNames": args.NodeNames, **rest})


def _prioritize(args: _Args) -> bytes:
    if args.NodeNames is not None:
        return _encode([_HostScore(name, 0) for name in args.NodeNames])
    items = (args.Nodes and args.Nodes.items) or []
    return _encode([_HostScore(_node.decode(item).metadata.name, 0) for item in items])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(api_url: str) -> None:
    """Serve until the run ends, with the settings of ``extender.server``."""
    # One big block that is given back teaches the allocator to keep such blocks; the service learns it from its lists.
    bytearray(_LEARNT_BYTES)
    async with aiohttp.ClientSession() as session:
        server = _Server(
            uvicorn.Config(
                Floor(api_url, session),
                host="127.0.0.1",
                port=0,
                http="httptools",
                loop="uvloop",
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                server_header=False,
                log_config=None,
                timeout_keep_alive=120,
                timeout_graceful_shutdown=1,
                backlog=2048,
            )
        )
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        say(url=f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        await wait_for_end()
        server.should_exit = True
        await task


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
