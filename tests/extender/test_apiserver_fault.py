"""Faults on demand, access, TLS and restarts of the embedded API server."""

import asyncio
import datetime
import errno
import json
import ssl

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from extender.cluster.apiserver import ApiServer, Fault, Interruption, ServerOptions

PODS = "/api/v1/namespaces/default/pods"


def make_pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}


@pytest.fixture
async def server():
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def client(server):
    async with aiohttp.ClientSession(server.url) as client:
        yield client


async def start_watch(client, server, **query):
    query = {"watch": "true", "resourceVersion": str(server.storage.resource_version), **query}
    return await client.get(PODS, params=query)


async def next_line(response):
    async with asyncio.timeout(5):
        return await response.content.readline()


async def eventually(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # many conditions, none with an event of its own
            await asyncio.sleep(0.005)


async def test_refusal_strikes_as_often_as_asked(server, client):
    fault = server.faults.add(Fault(method="POST", path="/pods$", count=2, status=429, headers={"Retry-After": "1"}))
    statuses = []
    for _ in range(3):
        async with client.post(PODS, json=make_pod("p")) as response:
            statuses.append((response.status, response.headers.get("Retry-After")))
    assert statuses == [(429, "1"), (429, "1"), (201, None)]
    assert fault.hits == 2


async def test_refusal_has_the_body_asked_for_until_it_is_removed(server, client):
    fault = server.faults.add(Fault(watch=False, count=None, status=502, body=b"bad gateway"))
    for _ in range(2):
        async with client.get(PODS) as response:
            assert (response.status, await response.text()) == (502, "bad gateway")
    server.faults.remove(fault)
    async with client.get(PODS) as response:
        assert response.status == 200


async def test_faults_of_watches_spare_lists(server, client):
    server.faults.add(Fault(watch=True, status=403))
    async with client.get(PODS) as response:
        assert response.status == 200
    async with await start_watch(client, server) as response:
        assert (response.status, (await response.json())["reason"]) == (403, "Forbidden")


async def test_delay_before_holds_the_request_up(server, client):
    gate = asyncio.Event()
    server.faults.add(Fault(delay_before=gate))
    asked = asyncio.create_task(client.post(PODS, json=make_pod("p")))
    await eventually(lambda: server.requests)
    assert server.storage.list("pods") == []
    gate.set()
    assert (await asked).status == 201


async def test_delay_after_makes_only_the_answer_late(server, client):
    gate = asyncio.Event()
    server.faults.add(Fault(delay_after=gate))
    asked = asyncio.create_task(client.post(PODS, json=make_pod("p")))
    await eventually(lambda: server.storage.list("pods"))
    assert not asked.done()
    gate.set()
    assert (await asked).status == 201


async def test_request_of_a_client_that_left_is_done_all_the_same(server, client):
    gate = asyncio.Event()
    server.faults.add(Fault(delay_before=gate))
    asked = asyncio.create_task(client.post(PODS, json=make_pod("p")))
    await eventually(lambda: server.requests)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gate.set()
    await eventually(lambda: server.storage.list("pods"))


@pytest.mark.parametrize(("cut", "pods"), [("before", 0), ("after", 1)], ids=["nothing was done", "it was done"])
async def test_cut_connection(server, client, cut, pods):
    server.faults.add(Fault(method="POST", cut=cut))
    with pytest.raises(aiohttp.ClientOSError) as caught:
        await client.post(PODS, json=make_pod("p"))
    assert caught.value.errno == errno.ECONNRESET
    assert len(server.storage.list("pods")) == pods


async def test_hanging_watch_keeps_its_connection_and_says_nothing(server, client):
    server.faults.add(Fault(watch=True, interruption=Interruption.HANG, after_lines=1))
    stream = await start_watch(client, server)
    server.storage.create("pods", make_pod("a"))
    assert b'"a"' in await next_line(stream)
    server.storage.create("pods", make_pod("b"))
    async with await start_watch(client, server, resourceVersion="1") as healthy:
        for name in (b'"a"', b'"b"'):
            assert name in await next_line(healthy)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stream.content.readline()
    assert not stream.content.at_eof()


@pytest.mark.parametrize(
    ("interruption", "expected"),
    [
        pytest.param(Interruption.END, [b""], id="it ends"),
        pytest.param(
            Interruption.TRUNCATED, [b'{"type":"MODIFIED","object":{"kind":"', b""], id="it ends inside a line"
        ),
    ],
)
async def test_watch_that_ends_at_once(server, client, interruption, expected):
    server.faults.add(Fault(watch=True, interruption=interruption))
    async with await start_watch(client, server) as stream:
        assert [await next_line(stream) for _ in expected] == expected


async def test_watch_that_is_cut(server, client):
    stream = await start_watch(client, server)
    assert server.interrupt_watches(Interruption.CUT) == 1
    with pytest.raises(aiohttp.ClientError):
        await next_line(stream)


async def test_watch_with_garbage_goes_on_after_it(server, client):
    stream = await start_watch(client, server)
    assert server.interrupt_watches(Interruption.GARBAGE, "/pods") == 1
    line = await next_line(stream)
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)
    server.storage.create("pods", make_pod("a"))
    assert json.loads(await next_line(stream))["type"] == "ADDED"


async def test_watch_that_expires_while_it_runs(server, client):
    stream = await start_watch(client, server)
    assert server.interrupt_watches(Interruption.EXPIRED, "/nodes") == 0
    assert server.interrupt_watches(Interruption.EXPIRED, "/pods") == 1
    event = json.loads(await next_line(stream))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert await next_line(stream) == b""


async def test_restart_keeps_port_and_storage(server, client):
    server.storage.create("pods", make_pod("kept"))
    url = server.url
    stream = await start_watch(client, server)
    await server.stop()
    with pytest.raises(aiohttp.ClientError):
        await next_line(stream)
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.get(PODS)
    assert server.open_watches == 0
    await server.start()
    assert server.url == url
    async with client.get(PODS) as response:
        assert [item["metadata"]["name"] for item in (await response.json())["items"]] == ["kept"]


async def test_stop_does_not_wait_for_held_requests(server, client):
    server.faults.add(Fault(delay_before=asyncio.Event()))
    asked = asyncio.create_task(client.post(PODS, json=make_pod("p")))
    await eventually(lambda: server.requests)
    async with asyncio.timeout(5):
        await server.stop()
    with pytest.raises(aiohttp.ClientError):
        await asked


async def test_requests_are_logged(server, client):
    async with client.get(PODS, params={"limit": "5"}), client.post(PODS, json=make_pod("p")):
        pass
    assert [(request.method, request.target) for request in server.requests] == [
        ("GET", f"{PODS}?limit=5"),
        ("POST", PODS),
    ]
    assert server.requests[0].at_seconds <= server.requests[1].at_seconds


async def test_token_can_be_replaced(server, client):
    server.options.token = "old"
    headers = {"Authorization": "Bearer old"}
    async with client.get(PODS, headers=headers) as response:
        assert response.status == 200
    server.options.token = "new"
    async with client.get(PODS, headers=headers) as response:
        assert response.status == 401
    async with client.get("/readyz") as response:
        assert (response.status, await response.text()) == (200, "ok")


async def test_single_verbs_can_be_forbidden(server, client):
    server.options.forbidden = {("create", "pods/binding"), ("get", "leases.coordination.k8s.io")}
    async with client.post(f"{PODS}/p/binding", json={}) as response:
        message = (await response.json())["message"]
        assert (response.status, message) == (
            403,
            f'pods "p" is forbidden: User "{server.options.user}" cannot create resource "pods/binding" '
            'in API group "" in the namespace "default"',
        )
    async with client.get("/apis/coordination.k8s.io/v1/namespaces/a/leases/l") as response:
        assert (response.status, (await response.json())["details"]) == (
            403,
            {"name": "l", "group": "coordination.k8s.io", "kind": "leases"},
        )
    async with client.get(PODS) as response:
        assert response.status == 200


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate for 127.0.0.1 and its key, for both sides."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "embedded")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "both.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + pem)
    return path


async def test_tls_with_client_certificates(certificate):
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    serving.load_cert_chain(certificate)
    serving.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=certificate)
    asking.load_cert_chain(certificate)
    anonymous = ssl.create_default_context(cafile=certificate)
    async with ApiServer(options=ServerOptions(ssl_context=serving)) as server, aiohttp.ClientSession() as client:
        assert server.url.startswith("https://127.0.0.1:")
        async with client.get(server.url + PODS, ssl=asking, server_hostname="localhost") as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await client.get(server.url + PODS, ssl=anonymous, server_hostname="localhost")
