"""Client and reflector against the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.cluster.apiserver import ApiServer, Fault, Interruption, ServerOptions
from extender.cluster.backoff import Backoff
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.errors import ApiError, ApiUnreachable
from extender.model.kind import PODS
from tests.extender.scripted import RecordingStore, eventually, running


def pod_named(name: str, node: str | None = None) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]} | ({"nodeName": node} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


@asynccontextmanager
async def synced(server: ApiServer) -> AsyncIterator[tuple[Reflector, RecordingStore, Client]]:
    await server.start()
    client, store = Client(from_url(server.url)), RecordingStore()
    reflector = Reflector(
        PODS, client, store, page_size=7, silence_seconds=0.5, healthy_seconds=0.05, backoff=Backoff(base_seconds=0.01)
    )
    try:
        async with running(reflector):
            await eventually(lambda: reflector.synced)
            yield reflector, store, client
    finally:
        await client.close()
        await server.stop()


def agree(store: RecordingStore, server: ApiServer) -> bool:
    """Return whether the store holds what the server does, at the same versions."""
    held = {item.metadata.name: item.metadata.resource_version for item in store.items.values()}
    return held == {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in server.storage.list("pods")}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming list", "list in pages"])
async def test_the_store_follows_the_server(streaming: bool) -> None:
    options = ServerOptions(streaming_lists=streaming, bookmark_interval_seconds=0.1)
    server = ApiServer([pod_named(f"p{i}") for i in range(30)], options)
    async with synced(server) as (reflector, store, client):
        assert len(store.items) == 30
        server.storage.create("pods", pod_named("new"))
        server.storage.delete("pods", "p0")
        uid = server.storage.get("pods", "p1")["metadata"]["uid"]
        await client.bind("default", "p1", uid, "node-1", {"example.com/device": "3"})
        await eventually(lambda: agree(store, server))
        assert store.items["default/p1"].spec.node_name == "node-1"
        assert store.items["default/p1"].metadata.annotations == {"example.com/device": "3"}
        assert (await client.get_pod("default", "p1")).spec == store.items["default/p1"].spec
        assert reflector.lists == 1
        with pytest.raises(ApiError, match="already assigned") as caught:
            await client.bind("default", "p1", uid, "node-2")
        assert caught.value.code == 409


@pytest.mark.parametrize("interruption", list(Interruption), ids=[item.value for item in Interruption])
async def test_the_store_follows_the_server_through_every_interruption(interruption: Interruption) -> None:
    server = ApiServer([pod_named(f"p{i}") for i in range(10)], ServerOptions(bookmark_interval_seconds=0.1))
    server.faults.add(Fault(watch=True, interruption=interruption, after_lines=12))
    async with synced(server) as (reflector, store, _):
        for round_ in range(5):
            server.storage.create("pods", pod_named(f"new{round_}"))
            server.storage.delete("pods", f"p{round_}")
            await eventually(lambda: agree(store, server))
        assert reflector.watches >= 2
        assert reflector.lists == (2 if interruption is Interruption.EXPIRED else 1)
        assert reflector.failing is None


async def test_a_bind_that_was_done_but_not_answered_is_told_as_maybe_done() -> None:
    server = ApiServer([pod_named("p")])
    async with synced(server) as (_, store, client):
        server.faults.add(Fault(method="POST", path="/binding$", cut="after"))
        with pytest.raises(ApiUnreachable) as caught:
            await client.bind("default", "p", server.storage.get("pods", "p")["metadata"]["uid"], "node-1")
        assert caught.value.maybe_done
        await eventually(lambda: store.items["default/p"].spec.node_name == "node-1")
