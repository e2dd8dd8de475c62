"""Objects over HTTP: create, read, update, patch, delete and bind."""

import io

import aiohttp
import pytest

from extender.cluster.apiserver import ApiServer, Resource, ServerOptions

PODS = "/api/v1/namespaces/default/pods"


def make_pod(name="web-0", *, spec=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c"}], **(spec or {})},
    }


@pytest.fixture
async def server():
    widgets = Resource("widgets", "Widget", "example.com", status=False)
    async with ApiServer(options=ServerOptions(resources=(widgets,))) as server:
        yield server


@pytest.fixture
async def call(server):
    async with aiohttp.ClientSession(server.url) as client:

        async def call(method, path, body=None, content_type="application/json"):
            headers = {"Content-Type": content_type} if body is not None else {}
            async with client.request(method, path, json=body, headers=headers) as response:
                return response.status, await response.json()

        yield call


def failure(answer):
    status, body = answer
    assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", status)
    return status, body["reason"], body["message"]


async def test_created_object_is_filled_in_and_found_again(server, call):
    status, pod = await call("POST", PODS, make_pod(labels={"a": "b"}))
    assert status == 201
    assert (pod["kind"], pod["apiVersion"], pod["metadata"]["namespace"]) == ("Pod", "v1", "default")
    assert pod["metadata"]["uid"]
    assert pod["metadata"]["creationTimestamp"].endswith("Z")
    assert pod["metadata"]["generation"] == 1
    assert pod["metadata"]["resourceVersion"] == str(server.storage.resource_version)
    assert (pod["spec"]["schedulerName"], pod["spec"]["priority"], pod["status"]) == (
        "default-scheduler",
        0,
        {"phase": "Pending"},
    )
    assert await call("GET", f"{PODS}/web-0") == (200, pod)
    assert server.storage.get("pods", "web-0") == pod


async def test_what_an_object_says_stays():
    pod = make_pod(uid="u-1", resourceVersion="7", creationTimestamp="2026-01-01T00:00:00Z", generation=4)
    pod["spec"] |= {"schedulerName": "mine", "priority": 5, "preemptionPolicy": "Never"}
    pod["status"] = {"phase": "Running"}
    stored = ApiServer([pod]).storage.get("pods", "web-0")
    assert stored["metadata"] == {**pod["metadata"], "namespace": "default"}
    assert stored["status"] == {"phase": "Running"}
    assert {**stored["spec"], **pod["spec"]} == stored["spec"]


async def test_defaults_that_scheduling_relies_on():
    container = {
        "name": "c",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        "ports": [{"containerPort": 80}],
    }
    pod = make_pod(spec={"hostNetwork": True, "containers": [container]})
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    storage = ApiServer([pod, node, namespace]).storage
    filled = storage.get("pods", "web-0")["spec"]["containers"][0]
    assert filled["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert filled["ports"] == [{"protocol": "TCP", "containerPort": 80, "hostPort": 80}]
    assert storage.get("nodes", "n")["status"]["allocatable"] == {"cpu": "4"}
    assert storage.get("namespaces", "team")["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}


@pytest.mark.parametrize(
    ("name", "priority"),
    [
        pytest.param("high", 1000, id="a class of the cluster"),
        pytest.param("system-node-critical", 2_000_001_000, id="a class of the system"),
        pytest.param("", 10, id="no class, with a default class"),
    ],
)
async def test_priority_follows_the_class(name, priority):
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    classes = [
        {**kind, "metadata": {"name": "high"}, "value": 1000},
        {**kind, "metadata": {"name": "usual"}, "value": 10, "globalDefault": True},
    ]
    storage = ApiServer([make_pod("first", spec={"priorityClassName": "high"}), *classes]).storage
    assert storage.get("pods", "first")["spec"]["priority"] == 1000
    created = storage.create("pods", make_pod(spec={"priorityClassName": name} if name else {}))
    assert created["spec"]["priority"] == priority


async def test_unknown_priority_class_is_forbidden(call):
    answer = await call("POST", PODS, make_pod(spec={"priorityClassName": "nope"}))
    assert failure(answer) == (
        403,
        "Forbidden",
        'pods "web-0" is forbidden: no PriorityClass with name nope was found',
    )


async def test_generated_names_differ(call):
    body = make_pod()
    body["metadata"] = {"generateName": "web-"}
    names = {(await call("POST", PODS, body))[1]["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        pytest.param("GET", f"{PODS}/no", None, (404, "NotFound", 'pods "no" not found'), id="get what is not there"),
        pytest.param(
            "DELETE", f"{PODS}/no", None, (404, "NotFound", 'pods "no" not found'), id="delete what is not there"
        ),
        pytest.param(
            "PUT", f"{PODS}/no", make_pod("no"), (404, "NotFound", 'pods "no" not found'), id="update what is not there"
        ),
        pytest.param(
            "POST",
            PODS,
            make_pod("there"),
            (409, "AlreadyExists", 'pods "there" already exists'),
            id="create what is there",
        ),
        pytest.param(
            "POST",
            PODS,
            make_pod("Bad_Name"),
            (
                422,
                "Invalid",
                'Pod "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": must be lower-case letters, '
                'digits, "-" and ".", with no "-" or "." at the ends',
            ),
            id="a name with an underscore",
        ),
        pytest.param(
            "POST",
            PODS,
            make_pod("p", labels={"a": 1}),
            (422, "Invalid", 'Pod "p" is invalid: metadata.labels.a: must be a string, got int 1'),
            id="a label that is a number",
        ),
        pytest.param(
            "POST",
            PODS,
            make_pod("p", namespace="other"),
            (
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
            id="another namespace than the path's",
        ),
        pytest.param(
            "PUT",
            f"{PODS}/there",
            make_pod("other"),
            (400, "BadRequest", "the name of the object (other) does not match the name on the URL (there)"),
            id="another name than the path's",
        ),
        pytest.param(
            "PUT",
            f"{PODS}/there",
            make_pod("there", resourceVersion="1"),
            (
                409,
                "Conflict",
                'Operation cannot be fulfilled on pods "there": the object has been modified; please apply your '
                "changes to the latest version and try again",
            ),
            id="update of an older version",
        ),
        pytest.param(
            "PUT",
            "/apis/example.com/v1/namespaces/default/widgets/no",
            {"metadata": {"name": "no"}},
            (404, "NotFound", 'widgets.example.com "no" not found'),
            id="a custom resource",
        ),
        pytest.param(
            "GET",
            "/api/v1/gadgets",
            None,
            (404, "NotFound", "the server could not find the requested resource"),
            id="a resource that is not served",
        ),
        pytest.param(
            "GET",
            "/somewhere",
            None,
            (404, "NotFound", "the server could not find the requested resource"),
            id="a path outside the API",
        ),
        pytest.param(
            "PUT",
            PODS,
            make_pod(),
            (405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
            id="a method the collection does not know",
        ),
    ],
)
async def test_refusals(server, call, method, path, body, expected):
    server.storage.create("pods", make_pod("there"))
    assert failure(await call(method, path, body)) == expected


async def test_bodies_that_are_no_json_object(server):
    async with aiohttp.ClientSession(server.url) as client:
        for body, kind, status in (
            (b"{", "application/json", 400),
            (b"[]", "application/json", 400),
            (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415),
            (b" " * (3 * 1024 * 1024 + 1), "application/json", 413),
        ):
            async with client.post(PODS, data=io.BytesIO(body), headers={"Content-Type": kind}) as response:
                assert failure((response.status, await response.json()))[0] == status


async def test_update_changes_the_spec_and_counts_it(server, call):
    _, pod = await call("POST", PODS, make_pod())
    pod["spec"]["priority"] = 3
    pod["status"] = {"phase": "Failed"}
    status, updated = await call("PUT", f"{PODS}/web-0", pod)
    assert status == 200
    assert (updated["spec"]["priority"], updated["metadata"]["generation"]) == (3, 2)
    assert updated["status"] == {"phase": "Pending"}
    assert int(updated["metadata"]["resourceVersion"]) > int(pod["metadata"]["resourceVersion"])


async def test_update_of_the_status_changes_nothing_else(server, call):
    _, pod = await call("POST", PODS, make_pod())
    changed = {**pod, "spec": {"containers": []}, "status": {"phase": "Running"}}
    _, updated = await call("PUT", f"{PODS}/web-0/status", changed)
    assert (updated["status"], updated["spec"]) == ({"phase": "Running"}, pod["spec"])
    patch = {"status": {"phase": "Succeeded"}, "spec": {"priority": 9}}
    _, patched = await call("PATCH", f"{PODS}/web-0/status", patch, "application/merge-patch+json")
    assert (patched["status"], patched["spec"]) == ({"phase": "Succeeded"}, pod["spec"])


async def test_update_that_changes_nothing_keeps_the_version(server, call):
    _, pod = await call("POST", PODS, make_pod())
    assert await call("PUT", f"{PODS}/web-0", pod) == (200, pod)
    assert server.storage.resource_version == int(pod["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("content_type", "patch", "labels"),
    [
        pytest.param(
            "application/merge-patch+json",
            {"metadata": {"labels": {"a": None, "c": "d"}}},
            {"c": "d"},
            id="merge patch",
        ),
        pytest.param(
            "application/strategic-merge-patch+json",
            {"metadata": {"labels": {"c": "d"}}},
            {"a": "b", "c": "d"},
            id="strategic merge patch",
        ),
        pytest.param(
            "application/json-patch+json",
            [{"op": "replace", "path": "/metadata/labels/a", "value": "z"}],
            {"a": "z"},
            id="JSON patch",
        ),
    ],
)
async def test_patches(server, call, content_type, patch, labels):
    server.storage.create("pods", make_pod(labels={"a": "b"}))
    status, pod = await call("PATCH", f"{PODS}/web-0", patch, content_type)
    assert (status, pod["metadata"]["labels"], pod["metadata"]["generation"]) == (200, labels, 1)


async def test_patch_of_another_kind_is_not_understood(server, call):
    server.storage.create("pods", make_pod())
    status, reason, _ = failure(await call("PATCH", f"{PODS}/web-0", {}, "application/apply-patch+yaml"))
    assert (status, reason) == (415, "UnsupportedMediaType")


async def test_deletion_is_immediate(server, call):
    server.storage.create("pods", make_pod(uid="u-1", spec={"nodeName": "n"}))
    details = {"name": "web-0", "kind": "pods", "uid": "u-1"}
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert await call("DELETE", f"{PODS}/web-0") == (200, expected)
    assert server.storage.list("pods") == []


async def test_deletion_with_a_grace_period_marks_the_pod_first(server, call):
    server.storage.create("pods", make_pod(spec={"nodeName": "n"}))
    status, pod = await call("DELETE", f"{PODS}/web-0", {"gracePeriodSeconds": 30})
    assert status == 200
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await call("DELETE", f"{PODS}/web-0?gracePeriodSeconds=0"))[1]["status"] == "Success"
    assert server.storage.list("pods") == []


@pytest.mark.parametrize(
    "preconditions", [{"uid": "other"}, {"resourceVersion": "1"}], ids=["another uid", "another version"]
)
async def test_deletion_of_another_object_is_refused(server, call, preconditions):
    server.storage.create("pods", make_pod())
    status, reason, message = failure(await call("DELETE", f"{PODS}/web-0", {"preconditions": preconditions}))
    assert (status, reason) == (409, "Conflict")
    assert "in the precondition" in message
    assert len(server.storage.list("pods")) == 1


@pytest.mark.parametrize(
    "path", [f"{PODS}/web-0/binding", "/api/v1/namespaces/default/bindings"], ids=["pod", "namespace"]
)
async def test_binding_assigns_the_pod_in_one_change(server, call, path):
    pod = server.storage.create("pods", make_pod(labels={"a": "b"}, uid="u-1"))
    version = server.storage.resource_version
    metadata = {"name": "web-0", "uid": "u-1", "annotations": {"device": "3"}, "labels": {"c": "d"}}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "n-1"}}
    status, answer = await call("POST", path, body)
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (status, answer) == (201, expected)
    bound = server.storage.get("pods", "web-0")
    assert server.storage.resource_version == version + 1
    assert bound["spec"] == {**pod["spec"], "nodeName": "n-1"}
    assert bound["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert bound["metadata"]["annotations"] == {"device": "3"}
    assert bound["metadata"]["generation"] == 1
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(
            make_pod(deletionTimestamp="2030-01-01T00:00:00Z"),
            "pod web-0 is being deleted, cannot be assigned to a host",
            id="being deleted",
        ),
        pytest.param(
            make_pod(spec={"schedulingGates": [{"name": "example.com/hold"}]}),
            "pod web-0 has non-empty .spec.schedulingGates",
            id="held by a gate",
        ),
    ],
)
async def test_binding_of_a_pod_that_cannot_be_bound(server, call, pod, why):
    server.storage.create("pods", pod)
    body = {"metadata": {"name": "web-0"}, "target": {"name": "n-1"}}
    answer = await call("POST", f"{PODS}/web-0/binding", body)
    expected = f'Operation cannot be fulfilled on pods/binding "web-0": {why}'
    assert failure(answer) == (409, "Conflict", expected)
    assert "nodeName" not in server.storage.get("pods", "web-0")["spec"]


async def test_custom_resources_are_served(server, call):
    path = "/apis/example.com/v1/namespaces/team/widgets"
    status, widget = await call("POST", path, {"metadata": {"name": "w"}, "size": 3})
    assert (status, widget["kind"], widget["apiVersion"]) == (201, "Widget", "example.com/v1")
    assert server.storage.get("widgets", "w", "team")["size"] == 3
