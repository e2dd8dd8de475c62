"""Tokens in files, fixed headers, and what becomes of them when the server refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from extender.cluster.client import Client
from extender.cluster.connection import Connection
from extender.cluster.credential import FixedHeader, TokenFile
from extender.cluster.reflector import Reflector
from extender.errors import ConfigurationError
from extender.model.kind import PODS
from tests.extender.scripted import OPEN, Clock, RecordingStore, ScriptedServer, case, eventually, failure, running


async def test_b26_a_rotated_token_is_used_in_time_and_a_401_forces_a_look_at_the_file(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    refused: set[str] = set()
    sent: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        sent.append(request.headers["Authorization"].removeprefix("Bearer "))
        if sent[-1] in refused:
            return web.json_response(failure(401, "Unauthorized", "Unauthorized"), status=401)
        return await OPEN(request) if "watch" in request.query else web.json_response({})

    async with ScriptedServer(answer) as server:

        def connection() -> Connection:
            return Connection(server.url, str(path), TokenFile(path, clock=clock))

        client = Client(connection())
        for step in case("B26-token-rotation.json")["steps"]:
            clock.now = step["t"]
            if "tokenFile" in step:
                path.write_text(step["tokenFile"] + "\n")
            if "server" in step:
                # The refusal must meet the rejected token while it is still in use.
                path.write_text("tok-1\n")
                clock.now += 60
                await client.request("GET", "/x")
                path.write_text("tok-2\n")
                refused.add("tok-1")
            asker = Client(connection()) if "second client" in step["do"] else client
            await asker.request("GET", "/x")
            if asker is not client:
                await asker.close()
        assert sent == ["tok-1", "tok-2", "tok-2", "tok-2", "tok-1", "tok-1", "tok-2"]
        reflector = Reflector(PODS, client, RecordingStore())
        async with running(reflector):
            await eventually(lambda: reflector.watches)
            assert sent[-1] == "tok-2"
        await client.close()


@pytest.mark.parametrize("age", [59, 60])
async def test_a_new_token_is_used_a_minute_after_the_file_changed_at_the_latest(tmp_path: Path, age: float) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("old")
    source = TokenFile(path, clock=clock)
    assert await source.header() == "Bearer old"
    path.write_text("new")
    clock.now = 1
    assert await source.header() == "Bearer old"
    clock.now = age
    assert await source.header() == "Bearer new"


async def test_a_token_file_that_is_being_replaced_does_not_lose_the_token(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("old")
    source = TokenFile(path, clock=clock)
    await source.header()
    for content in (None, "", "not\na token"):
        clock.now += 60
        path.unlink(missing_ok=True) if content is None else path.write_text(content)
        assert await source.header() == "Bearer old"


async def test_a_token_file_counts_before_the_token_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = TokenFile(path, fallback="inline")
    assert await source.header() == "Bearer inline"
    path.write_text("from-file")
    await source.renew("Bearer inline")
    assert await source.header() == "Bearer from-file"


async def test_many_refused_requests_read_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t1")
    source = TokenFile(path)
    assert await source.header() == "Bearer t1"
    path.write_text("t2")
    await source.renew("Bearer t1")
    path.write_text("t3")
    await source.renew("Bearer t1")
    assert await source.header() == "Bearer t2"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="there is no file"),
        pytest.param(b" \n", id="the file is empty"),
        pytest.param(b"one\ntwo", id="there are two lines"),
        pytest.param(b"\xff\xfe", id="the file is no text"),
    ],
)
async def test_a_file_without_a_token_is_an_error_and_not_an_anonymous_request(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path}: .*token"):
        await TokenFile(path).header()


async def test_a_user_name_and_a_password_make_a_basic_header() -> None:
    assert await FixedHeader.basic("Aladdin", "open sesame").header() == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


def test_importing_the_client_does_not_import_the_kubernetes_package() -> None:
    code = "import sys, extender.cluster.reflector; print('kubernetes' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
