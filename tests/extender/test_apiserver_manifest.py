"""Cluster files: what is read from them, and how bad ones are reported."""

import json

import pytest

from extender.cluster.apiserver import ApiServer, Catalogue, Resource, load_objects
from extender.errors import ConfigurationError

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


@pytest.fixture
def write(tmp_path):
    def write(text, name="cluster.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_documents_lists_and_empty_documents(write):
    path = write("""\
# first a comment
---
apiVersion: v1
kind: Node
metadata: {name: n-1, labels: {2: a, true: b}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n-2, creationTimestamp: 2026-12-01T12:25:00Z}}
- {apiVersion: v1, kind: Node, metadata: {name: n-3}, spec: {taints: [{key: k, operator: =}]}}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: p, namespace: team}
  spec: {containers: []}
---
""")
    objects = load_objects(path)
    assert [(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("v1", "Node", "n-1"),
        ("v1", "Node", "n-2"),
        ("v1", "Node", "n-3"),
        ("v1", "Pod", "p"),
    ]
    assert objects[0]["metadata"]["labels"] == {"2": "a", "true": "b"}
    assert objects[1]["metadata"]["creationTimestamp"] == "2026-12-01T12:25:00Z"
    assert [pod["metadata"]["namespace"] for pod in ApiServer(objects).storage.list("pods")] == ["team"]


def test_json_list(write):
    path = write(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE]}), "cluster.json")
    assert load_objects(path) == [NODE]


def test_null_lists_load(write):
    path = write(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: null}, spec: {containers: null}, status: null}\n---\n"
        "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n}, spec: {drivers: null}}\n---\n"
        "{apiVersion: v1, kind: List, items: null}\n"
    )
    storage = ApiServer(load_objects(path)).storage
    assert storage.get("pods", "p")["spec"]["containers"] is None
    assert storage.get("csinodes", "n")["spec"] == {"drivers": None}


def test_custom_kinds(write):
    path = write("{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}")
    assert len(load_objects(path, Catalogue([Resource("widgets", "Widget", "example.com")]))) == 1
    with pytest.raises(ConfigurationError, match=r"document 1: Widget: kind: is not served in example.com/v1"):
        load_objects(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("- a\n", "document 1: must be an object, got list", id="a bare list"),
        pytest.param("kind: Pod\n", "document 1: apiVersion: must be a string, got None", id="no apiVersion"),
        pytest.param(
            "{apiVersion: v1, kind: Gadget}", "document 1: Gadget: kind: is not served in v1", id="an unknown kind"
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod}",
            "document 1: Pod: metadata: must be an object, got nothing",
            id="no metadata",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {}}",
            "document 1: Pod: metadata.name: Required value: name or generateName is required",
            id="no name",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {on: yes}}}",
            "document 1: Pod p: metadata.labels.true: must be a string, got bool True",
            id="a label that YAML takes for a boolean",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: p, resourceVersion: 5}}",
            "document 1: Pod p: metadata.resourceVersion: must be a string, got int 5",
            id="a version without quotes",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Node, metadata: {name: n, namespace: d}}",
            "document 1: Node n: metadata.namespace: Forbidden: not allowed on this type",
            id="a namespace on a node",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: {name: c}}}",
            "document 1: Pod p: spec.containers: must be a list of objects, got dict {'name': 'c'}",
            id="containers that are no list",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: 1}}]}}",
            "document 1: Pod p: spec.containers[0].resources.limits: must be an object, got int 1",
            id="limits that are no object",
        ),
        pytest.param(
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: 5}}]}",
            "document 1, item 1: Node 5: metadata.name: must be a string, got int 5",
            id="an item of a list",
        ),
        pytest.param(
            "{apiVersion: v1, kind: List, items: 3}",
            "document 1: List: items: must be a list, got int",
            id="items that are no list",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Node, metadata: {name: n}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n}}",
            "document 2: Node n: metadata.name: is taken by document 1",
            id="a name twice",
        ),
    ],
)
def test_bad_objects_are_named(write, text, problem):
    path = write(text)
    with pytest.raises(ConfigurationError) as caught:
        load_objects(path)
    assert caught.value.problems == (f"{path}: {problem}",)


def test_all_problems_are_told_at_once(write):
    path = write("{apiVersion: v1, kind: Pod, metadata: {}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: 1}}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_objects(path)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        pytest.param("a: b\n---\na: [\n", "cluster.yaml", "document 2: is not YAML", id="broken YAML"),
        pytest.param("{", "cluster.json", "is not JSON", id="broken JSON"),
    ],
)
def test_broken_files(write, text, name, problem):
    with pytest.raises(ConfigurationError, match=problem):
        load_objects(write(text, name))


def test_missing_file(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_objects(tmp_path / "nowhere.yaml")


def test_server_names_the_object_it_cannot_keep():
    with pytest.raises(ConfigurationError) as caught:
        ApiServer([NODE, {**NODE, "kind": "Gadget"}, NODE])
    assert caught.value.problems == (
        "object 2: kind Gadget is not served in v1",
        "object 3: Node n is there twice",
    )


def test_resource_cannot_be_added_twice():
    with pytest.raises(ConfigurationError, match="resource pods: is served already"):
        Catalogue([Resource("pods", "Pod")])
