"""The scheduler stand-in judges canned replies exactly as kube-scheduler 1.36.2 did."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from extender.testing import (
    CannedServer,
    ExtenderCallError,
    FilterOutcome,
    PrioritizeOutcome,
    Reply,
    SchedulerClient,
    SchedulerPanic,
    Victims,
)

CASES = Path(__file__).parents[1] / "data" / "cases"

POD = {"metadata": {"name": "in", "namespace": "default", "uid": "uid-incoming"}, "spec": {"containers": []}}
NODES = [{"metadata": {"name": name, "labels": {"zone": "z1"}}} for name in ("n1", "n2")]
PODS_BY_NODE = {name: [{"metadata": {"name": f"p-{name}", "uid": f"uid-victim-{name}"}}] for name in ("n1", "n2")}

POINTS = {
    "weight-1": {"n1": 100, "n2": 30},
    "weight-5": {"n1": 500, "n2": 150},
    "missing-host": {"n1": 100, "n2": 0},
    "duplicate-host": {"n1": 80, "n2": 60},
    "above-ten": {"n1": 1000, "n2": 0},
    "negative": {"n1": -100, "n2": 0},
    "all-equal": {"n1": 210, "n2": 210},
}
"""The points that B06's expected text tells in prose."""


def load(number: str) -> dict:
    return json.loads(next(CASES.glob(f"{number}-*.json")).read_text())


def expected_lines(number: str) -> dict[str, list[str]]:
    """The lines after ``Per case:``, by case; ``path seen`` belongs to the case before it."""
    lines: dict[str, list[str]] = {}
    text = next(CASES.glob(f"{number}-*.expected.txt")).read_text().partition("Per case:\n")[2]
    for line in text.splitlines():
        case, _, outcome = line.partition(": ")
        if case == "path seen":
            list(lines.values())[-1].append(line)
        else:
            lines[case] = [outcome]
    return lines


def canned_replies() -> list[pytest.param]:
    params = []
    for number in ("B02", "B03", "B04", "B05", "B13", "B20"):
        expected = expected_lines(number)
        cases = load(number)["replies"]
        assert [case["id"] for case in cases] == list(expected)
        params += [
            pytest.param(case, expected[case["id"]], id=f"{number} {case['id'].replace('-', ' ')}") for case in cases
        ]
    return params


def render_filter(outcome: FilterOutcome) -> str:
    kept = []
    for node in outcome.nodes:
        used = "0m" if outcome.usage_lost or not any(node is offered for offered in NODES) else "3000m"
        kept.append(f"{node['metadata']['name']}(used {used}, labels {len(node['metadata'].get('labels', {}))})")
    failed, unresolvable = (
        " ".join(f"{name}:{reason}" for name, reason in sorted(reasons.items()))
        for reasons in (outcome.failed, outcome.unresolvable)
    )
    return f"kept [{' '.join(kept)}] failed map[{failed}] unresolvable map[{unresolvable}]"


def render_prioritize(outcome: PrioritizeOutcome) -> str:
    return f"scores [{' '.join(f'{{{host} {score}}}' for host, score in outcome.scores)}] weight {outcome.weight}"


def render_preempt(victims: dict[str, Victims]) -> str:
    chosen = (
        f"{node}={len(found.pods)} victims pdb={found.num_pdb_violations}" for node, found in sorted(victims.items())
    )
    return f"[{' '.join(chosen)}]"


def call(client: SchedulerClient, verb: str) -> str:
    """Call a verb as the cases tell and return the outcome in their notation."""
    if verb == "filter":
        return render_filter(client.filter(POD, NODES))
    if verb == "prioritize":
        return render_prioritize(client.prioritize(POD, NODES))
    if verb == "preempt":
        proposed = {node: Victims(pods, num_pdb_violations=1) for node, pods in PODS_BY_NODE.items()}
        return render_preempt(client.preempt(POD, proposed, PODS_BY_NODE))
    try:
        assert client.bind("default", "in", "uid-incoming", "n1") is True
    except ExtenderCallError as error:
        return f"bind err={error}"
    return "bind err=<nil>"


@pytest.mark.parametrize(("case", "expected"), canned_replies())
def test_reply_has_the_outcome_it_has_in_kube_scheduler(case: dict, expected: list[str]):
    body = case["rawReply"].encode() if "rawReply" in case else json.dumps(case["reply"]).encode()
    with (
        CannedServer(Reply(body, status=case.get("status", 200))) as server,
        SchedulerClient(server.url + case.get("urlSuffix", ""), node_cache_capable=case["nodeCacheCapable"]) as client,
    ):
        try:
            outcome = call(client, case["verb"])
        except ExtenderCallError as error:
            outcome = f"ERROR {error}"
        except SchedulerPanic as panic:
            outcome = f"PANIC in kube-scheduler: {panic}"
        paths = [f"path seen: {urlsplit(request.target).path}" for request in server.received]
    assert [outcome.replace(f":{server.server_port}", ":PORT"), *paths][: len(expected)] == expected


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"B06 {case['id'].replace('-', ' ')}") for case in load("B06")["answers"]]
)
def test_scores_are_worth_the_points_kube_scheduler_adds(case: dict):
    with (
        CannedServer(Reply(json.dumps(case["reply"]).encode())) as server,
        SchedulerClient(server.url, weight=case["weight"]) as client,
    ):
        assert client.prioritize(POD, NODES).points == POINTS[case["id"]]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"B12 {case['id'].replace('-', ' ')}") for case in load("B12")["managed"]]
)
def test_extender_is_called_only_for_pods_that_name_its_resource(case: dict):
    called = expected_lines("B12")[case["id"]] == ["called=true"]
    victims = {"n1": Victims(PODS_BY_NODE["n1"])}
    with (
        CannedServer(Reply(b"null")) as server,
        SchedulerClient(server.url, managed_resources=["example.com/gpu"]) as client,
    ):
        assert client.is_interested(case["pod"]) is called
        assert client.filter(case["pod"], NODES).nodes == ([] if called else NODES)
        assert client.prioritize(case["pod"], NODES).weight == (1 if called else 0)
        assert client.preempt(case["pod"], victims, PODS_BY_NODE) == ({} if called else victims)
        assert [request.target for request in server.received] == (
            ["/filter", "/prioritize", "/preempt"] if called else []
        )


@pytest.mark.parametrize(
    ("case", "by_name", "old_keys"),
    [
        pytest.param("full-nodes", False, False, id="whole nodes"),
        pytest.param("names-only", True, False, id="names"),
        pytest.param("lowercase-keys", False, True, id="the keys of old releases"),
        pytest.param("names-empty", True, False, id="an empty list of names"),
        pytest.param("prioritize-names-only", True, False, id="names to prioritize"),
        pytest.param("prioritize-empty", True, False, id="an empty list of names to prioritize"),
        pytest.param("prioritize-one-node", True, False, id="one name to prioritize"),
    ],
)
def test_request_body_is_written_as_reported(case: str, by_name: bool, old_keys: bool):
    request = next(request for request in load("B01")["requests"] if request["id"] == case)
    fields = {key.lower(): value for key, value in request["body"].items()}
    if fields["nodes"]:
        fields["nodes"].setdefault("metadata", {})
        nodes = fields["nodes"]["items"]
    else:
        nodes = [{"metadata": {"name": name}} for name in fields["nodenames"]]
    with (
        CannedServer(Reply(b"null")) as server,
        SchedulerClient(server.url, node_cache_capable=by_name, lower_case_keys=old_keys) as client,
    ):
        if request["path"] == "/prioritize":
            client.prioritize(fields["pod"], nodes)
        else:
            client.filter(fields["pod"], nodes)
    (received,) = server.received
    assert received.target == request["path"]
    assert json.loads(received.body) == request["body"]
