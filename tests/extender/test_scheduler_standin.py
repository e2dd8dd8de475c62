"""The scheduler stand-in sends what kube-scheduler sends, and takes failures as kube-scheduler takes them."""

import gzip
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from extender.testing import (
    CannedServer,
    DecodeError,
    ExtenderCallError,
    FilterOutcome,
    Reply,
    SchedulerClient,
    SchedulerPanic,
    Victims,
    make_node,
    make_pod,
)
from extender.testing.reply import read_bind, read_filter, read_preempt, read_prioritize

WIRE = Path(__file__).parents[1] / "data" / "wire"
POD = make_pod("in")
NODES = [make_node("a"), make_node("b")]
VICTIM = make_pod("low", node="a")
VICTIMS = {"a": Victims([VICTIM])}
PODS_BY_NODE = {"a": [make_pod("other", node="a"), VICTIM], "b": []}


# --- requests --------------------------------------------------------------------------------------------------------


def replay(client: SchedulerClient, verb: str, recorded: dict, snapshot: dict) -> None:
    """Make the call of a recording again and check that the recorded pass-through reply is taken as consent."""
    if verb == "bind":
        identity = (recorded["PodNamespace"], recorded["PodName"], recorded["PodUID"])
        assert client.bind(*identity, recorded["Node"]) is True
    elif verb == "preempt":
        victims = {name: Victims(pods) for name, pods in snapshot.items()}
        assert client.preempt(recorded["Pod"], victims, snapshot) == victims
    else:
        names = recorded["NodeNames"]
        nodes = [{"metadata": {"name": name}} for name in names] if names else recorded["Nodes"]["items"]
        if verb == "filter":
            assert client.filter(recorded["Pod"], nodes) == FilterOutcome(nodes, {}, {}, usage_lost=not names)
        else:
            scores = client.prioritize(recorded["Pod"], nodes).points.values()
            assert list(scores) == [10 * place for place in range(len(nodes))]


@pytest.mark.parametrize("mode", ["names-mode", "nodes-mode"])
@pytest.mark.parametrize(
    "call",
    ["filter-web-1", "filter-db-1", "prioritize-web-1", "prioritize-db-1", "bind-web-1", "bind-db-1", "preempt-urgent"],
)
def test_request_is_byte_for_byte_the_recorded_one(mode: str, call: str):
    body = (WIRE / mode / f"{call}.json").read_bytes()
    head = (WIRE / mode / f"{call}.headers").read_text().rstrip()
    port = head.partition("127.0.0.1:")[2][:5]
    recorded = json.loads(body)
    victims = recorded.get("NodeNameToVictims") or recorded.get("NodeNameToMetaVictims") or {}
    snapshot = {
        name: [pod if "metadata" in pod else {"metadata": {"uid": pod["UID"]}} for pod in proposed["Pods"]]
        for name, proposed in victims.items()
    }
    passed = (WIRE / mode / f"{call}.passthrough-reply.json").read_bytes()
    with (
        CannedServer(Reply(passed)) as server,
        SchedulerClient(f"{server.url}/scheduler", node_cache_capable=mode == "names-mode") as client,
    ):
        replay(client, call.partition("-")[0], recorded, snapshot)
    (request,) = server.received
    assert request.head.replace(str(server.server_port), port) == head
    assert request.body == body


def test_old_releases_sent_lower_case_keys_for_bind_and_preempt():
    with (
        CannedServer(Reply(b"{}")) as server,
        SchedulerClient(server.url, lower_case_keys=True) as by_name,
        SchedulerClient(server.url, lower_case_keys=True, node_cache_capable=False) as by_node,
    ):
        by_name.bind("default", "in", "uid-in", "a")
        by_name.preempt(POD, VICTIMS, PODS_BY_NODE)
        by_node.preempt(POD, VICTIMS, PODS_BY_NODE)
    assert [json.loads(request.body) for request in server.received] == [
        {"podName": "in", "podNamespace": "default", "podUID": "uid-in", "node": "a"},
        {
            "pod": POD,
            "nodeNameToVictims": None,
            "nodeNameToMetaVictims": {"a": {"pods": [{"uid": "uid-low"}], "numPDBViolations": 0}},
        },
        {
            "pod": POD,
            "nodeNameToVictims": {"a": {"pods": [VICTIM], "numPDBViolations": 0}},
            "nodeNameToMetaVictims": None,
        },
    ]


def test_go_escapes_what_html_would_read_and_writes_null_for_no_nodes():
    pod = make_pod("in", annotations={"note": "<a&b> ü\u2028"})
    with CannedServer(Reply(b"{}")) as server, SchedulerClient(server.url, node_cache_capable=False) as client:
        client.filter(pod, [])
    (request,) = server.received
    assert rb"\u003ca\u0026b\u003e " + "ü".encode() + rb"\u2028" in request.body
    assert json.loads(request.body) == {"Pod": pod, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None}


# --- connections -----------------------------------------------------------------------------------------------------


def test_connection_is_kept_until_a_reply_is_thrown_away_unread():
    refusal = Reply(b'{"Error": "never read"}', status=500)
    with CannedServer(Reply(b"{}"), Reply(b"{}"), refusal, Reply(b"{}")) as server:
        with SchedulerClient(server.url) as client:
            client.bind("default", "in", "u", "a")
            client.bind("default", "in", "u", "a")
            with pytest.raises(ExtenderCallError, match=r"code 500$") as caught:
                client.bind("default", "in", "u", "a")
            client.bind("default", "in", "u", "a")
        ports = [request.client_port for request in server.received]
    assert caught.value.status == 500
    assert ports[0] == ports[1] == ports[2] != ports[3]


def test_body_is_sent_again_to_where_a_307_points():
    moved = Reply(status=307, headers={"Location": "/filter/"})
    with CannedServer(moved, Reply(b'{"NodeNames": ["b"]}')) as server, SchedulerClient(server.url) as client:
        assert client.filter(POD, NODES).names == ["b"]
    first, second = server.received
    assert (first.target, second.target) == ("/filter", "/filter/")
    assert first.body == second.body


def test_gzip_that_was_offered_is_understood():
    packed = Reply(gzip.compress(b'{"NodeNames": ["a"]}'), headers={"Content-Encoding": "gzip"})
    with CannedServer(packed) as server, SchedulerClient(server.url) as client:
        assert client.filter(POD, NODES).names == ["a"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        pytest.param(
            Reply(stall=True),
            'Post "URL/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
            id="no answer in time",
        ),
        pytest.param(
            Reply(b" " * 1000, pace_seconds=0.02),
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
            id="a body that trickles in past the time",
        ),
        pytest.param(
            Reply(b" " * 10, pace_seconds=100),
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
            id="a body that does not come",
        ),
        pytest.param(Reply(hang_up=True), 'Post "URL/filter": EOF', id="a closed connection"),
        pytest.param(
            Reply(b"{}", headers={"Content-Length": "9", "Connection": "close"}), "unexpected EOF", id="half a body"
        ),
    ],
)
def test_broken_call_fails_in_gos_words(reply: Reply, message: str):
    with CannedServer(reply) as server, SchedulerClient(server.url, http_timeout_seconds=0.2) as client:
        with pytest.raises(ExtenderCallError) as caught:
            client.filter(POD, NODES)
        assert str(caught.value).replace(server.url, "URL") == message


def test_extender_that_is_down_fails_the_call():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        SchedulerClient(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ExtenderCallError, match=f'^Post "http://127.0.0.1:{port}/bind": .*refused'),
    ):
        client.bind("default", "in", "u", "a")


def server_certificate(folder: Path) -> Path:
    """Write a self-signed certificate of 127.0.0.1 with its key and return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "extender")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file


def test_server_is_verified_only_when_there_is_something_to_verify_it_with(tmp_path: Path):
    certificate = server_certificate(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate))
    strangers = ssl.create_default_context()
    with CannedServer(Reply(b"{}"), tls=served) as server:
        for tls in (None, trusted):
            with SchedulerClient(server.url, tls=tls) as client:
                assert client.bind("default", "in", "u", "a") is True
        with (
            SchedulerClient(server.url, tls=strangers) as client,
            pytest.raises(ExtenderCallError, match="certificate"),
        ):
            client.bind("default", "in", "u", "a")


# --- configuration ---------------------------------------------------------------------------------------------------


def test_failure_of_an_ignorable_extender_counts_as_consent():
    with CannedServer(Reply(b'{"Error": "out of order"}', status=500)) as server:
        with SchedulerClient(server.url, ignorable=True) as client:
            assert client.filter(POD, NODES) == FilterOutcome(NODES, {}, {})
            assert client.preempt(POD, VICTIMS, PODS_BY_NODE) == VICTIMS
            assert client.bind("default", "in", "u", "a") is False
        assert len(server.received) == 3


def test_ignorable_extender_can_still_bring_the_scheduler_down():
    with (
        CannedServer(Reply(b'{"NodeNameToMetaVictims": {"a": null}}')) as server,
        SchedulerClient(server.url, ignorable=True) as client,
        pytest.raises(SchedulerPanic, match="nil pointer"),
    ):
        client.preempt(POD, VICTIMS, PODS_BY_NODE)


def test_verbs_that_are_not_configured_are_not_called():
    with (
        CannedServer(Reply(status=500)) as server,
        SchedulerClient(server.url, filter_verb="", prioritize_verb="", bind_verb="", preempt_verb="") as client,
    ):
        assert client.filter(POD, NODES) == FilterOutcome(NODES, {}, {})
        assert client.prioritize(POD, NODES).points == {"a": 0, "b": 0}
        with pytest.raises(ExtenderCallError, match=r"^unexpected empty bindVerb in extender$"):
            client.bind("default", "in", "u", "a")
        with pytest.raises(ExtenderCallError, match=r"^preempt verb is not defined for extender .* ProcessPreemption$"):
            client.preempt(POD, VICTIMS, PODS_BY_NODE)
        assert server.received == []


def test_verb_is_the_last_part_of_the_path_whatever_it_is():
    with CannedServer(Reply(b"null")) as server, SchedulerClient(f"{server.url}//", filter_verb="/v1/fit") as client:
        client.filter(POD, NODES)
    assert [request.target for request in server.received] == ["//v1/fit"]


# --- replies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "body", "message"),
    [
        ("filter", b" \n", "EOF"),
        ("filter", b'{"NodeNames":["a"', "unexpected EOF"),
        ("filter", b'{"NodeNames":["a\n"]}', "invalid character '\\n' in string literal"),
        ("filter", b'{"NodeNames":["\\x"]}', "invalid character 'x' in string escape code"),
        ("filter", b'{"NodeNames":["\\u00g0"]}', "invalid character 'g' in \\u hexadecimal character escape"),
        ("filter", b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
        ("filter", b'{"Error" "x"}', "invalid character '\"' after object key"),
        ("filter", b'{"Error":"x" "y"}', "invalid character '\"' after object key:value pair"),
        ("filter", b'{"Error":"x",}', "invalid character '}' looking for beginning of object key string"),
        ("filter", b"{'Error':'x'}", "invalid character '\\'' looking for beginning of object key string"),
        ("filter", b'{"Error":nil}', "invalid character 'i' in literal null (expecting 'u')"),
        ("filter", b"7.x", "invalid character 'x' after decimal point in numeric literal"),
        ("filter", b'{"NodeNames":[1]}', "json: cannot unmarshal number into Go struct field "
         "ExtenderFilterResult.NodeNames of type string"),
        ("filter", b'{"FailedNodes":[]}', "json: cannot unmarshal array into Go struct field "
         "ExtenderFilterResult.FailedNodes of type v1.FailedNodesMap"),
        ("filter", b'{"nodes":{"ITEMS":[{"metadata":{"name":true}}]}}', "json: cannot unmarshal bool into Go struct "
         "field ObjectMeta.Nodes.items.metadata.name of type string"),
        ("prioritize", b'[{"Host":"a","Score":-Infinity}]', "invalid character 'I' in numeric literal"),
        ("prioritize", b'[{"Host":"a","Score":1e+}]', "invalid character '}' in exponent of numeric literal"),
        ("prioritize", b'[{"Host":"a","Score":05}]', "invalid character '5' after object key:value pair"),
        ("prioritize", b'[{"Host":"a"} {"Host":"b"}]', "invalid character '{' after array element"),
        ("prioritize", b"[5]", "json: cannot unmarshal number into Go value of type v1.HostPriority"),
        ("prioritize", b'[{"Score":9223372036854775808}]', "json: cannot unmarshal number 9223372036854775808 "
         "into Go struct field HostPriority.Score of type int64"),
        ("bind", b'"bound"', "json: cannot unmarshal string into Go value of type v1.ExtenderBindingResult"),
        ("preempt", b'{"nodenametometavictims":{"a":{"pods":[{"uid":7}]}}}', "json: cannot unmarshal number into Go "
         "struct field MetaPod.NodeNameToMetaVictims.Pods.UID of type string"),
        ("preempt", b'{"NodeNameToMetaVictims":{"a":{"Pods":{}}}}', "json: cannot unmarshal object into Go "
         "struct field MetaVictims.NodeNameToMetaVictims.Pods of type []*v1.MetaPod"),
    ],
)  # fmt: skip
def test_body_is_refused_in_the_words_of_gos_decoder(verb: str, body: bytes, message: str):
    read = {
        "filter": lambda: read_filter(body, NODES, by_name=True, url_prefix=""),
        "prioritize": lambda: read_prioritize(body, NODES, 1),
        "bind": lambda: read_bind(body),
        "preempt": lambda: read_preempt(body, PODS_BY_NODE, url_prefix=""),
    }[verb]
    with pytest.raises(DecodeError) as caught:
        read()
    assert str(caught.value) == message


def test_null_empties_a_list_but_leaves_a_text():
    body = (
        b'{"NodeNames":["a"],"nodenames":null,"Error":"","error":null,"FailedNodes":{"a":null},"failednodes":{"b":"x"}}'
    )
    outcome = read_filter(body, NODES, by_name=True, url_prefix="")
    assert outcome == FilterOutcome([], {"a": "", "b": "x"}, {})
    with pytest.raises(ExtenderCallError, match="boom"):
        read_bind(b'{"Error":"boom","error":null}')


def test_nesting_past_any_limit_is_refused():
    with pytest.raises(DecodeError, match="exceeded max depth"):
        read_bind(b"[" * 100_000)


def test_names_are_quoted_as_go_quotes_them():
    with pytest.raises(ExtenderCallError, match=r'claims a filtered node "ü\\"\\n\\x01\\u2028" which') as caught:
        read_filter(b'{"NodeNames":["\xc3\xbc\\"\\n\\u0001\\u2028"]}', NODES, by_name=True, url_prefix="http://x")
    assert str(caught.value).startswith('extender "http://x" claims')


def test_victims_are_the_pods_of_the_snapshot():
    body = b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"uid-low"}],"NumPDBViolations":2},"b":{}}}'
    victims = read_preempt(body, PODS_BY_NODE, url_prefix="")
    assert victims == {"a": Victims([VICTIM], 2), "b": Victims([], 0)}
    assert victims["a"].pods[0] is VICTIM


def test_null_pod_on_an_empty_node_is_an_error_and_no_panic():
    with pytest.raises(ExtenderCallError, match=r"\(UID: <nil>\) on node: b, but"):
        read_preempt(b'{"NodeNameToMetaVictims":{"b":{"Pods":[null]}}}', PODS_BY_NODE, url_prefix="")


def test_points_past_int64_wrap_around():
    outcome = read_prioritize(b'[{"Host":"a","Score":9223372036854775807},{"Host":"ghost","Score":1}]', NODES, 1)
    assert outcome.points == {"a": -10, "b": 0}
    assert outcome.scores[1].host == "ghost"
