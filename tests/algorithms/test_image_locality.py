"""ImageLocality, by a table of cases, against its formula node by node, and the laws of its cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.image_locality import ImageLocality, ImageStates, normalize_image_name
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

MB = 1024 * 1024


def node(name, images=None):
    return make_node(name, images=images or {})


def pod(*images, init=(), volumes=()):
    return make_pod(
        "p",
        containers=[{"name": f"c{place}", "image": image} for place, image in enumerate(images)],
        initContainers=[{"name": f"i{place}", "image": image} for place, image in enumerate(init)],
        volumes=[{"name": f"v{place}", "image": {"reference": image}} for place, image in enumerate(volumes)],
    )


NODES = [
    node("none"),
    node("small", {"app:v1": 46 * MB}),
    node("large", {"app:v1": 2000 * MB, "db:latest": 1000 * MB}),
    node("other", {"db:latest": 500 * MB, "registry:5000/tool:latest": 4000 * MB}),
]


@pytest.mark.parametrize(
    ("pod", "scores"),
    [
        # app:v1 is on two nodes of four, so half of its size counts: 23 MB and 1000 MB.
        pytest.param(pod("app:v1"), [0, 0, 100, 0], id="the thresholds are 23 and 1000 megabytes of one container"),
        pytest.param(
            pod("db"), [0, 0, 48, 23], id="without a tag latest is meant, and between them the score is linear"
        ),
        pytest.param(pod("app:v1", "db"), [0, 0, 74, 11], id="images add up, and the upper threshold with them"),
        pytest.param(pod("app:v1", "app:v1"), [0, 1, 100, 0], id="an image used twice counts twice"),
        pytest.param(pod("app:v1", init=["db"]), [0, 0, 74, 11], id="init containers count like all others"),
        pytest.param(
            pod("app:v1", volumes=["db"]), [0, 0, 100, 23], id="volumes count too, but do not raise the upper threshold"
        ),
        pytest.param(pod("app:v2", volumes=["db", "db"]), [0, 0, 100, 48], id="as often as they are mounted"),
        pytest.param(pod("registry:5000/tool"), [0, 0, 0, 100], id="the port of a registry is no tag"),
        pytest.param(pod("app:v2"), [0, 0, 0, 0], id="another tag is another image"),
        pytest.param(pod(), [0, 0, 0, 0], id="a pod without containers scores nothing"),
    ],
)
def test_score(pod, scores):
    found = Lab(NODES).score(ImageLocality, pod)
    assert list(found.raw.values()) == scores
    assert found.normalized == found.raw


def test_the_spread_is_over_all_nodes_and_not_over_the_candidates():
    found = Lab(NODES).score(ImageLocality, pod("db"), nodes=["other"])
    assert found.raw == {"other": 23}


def test_a_volume_of_an_image_is_not_kept_of_placed_pods():
    placed = make_pod("p", node="none", volumes=["claim", {"name": "files", "image": {"reference": "db"}}])
    (info,) = Lab([placed]).mirror.pods.values()
    assert [volume.name for volume in info.volumes] == ["claim"]


def test_the_share_is_taken_in_floating_point_and_cut_off():
    # A 49th of this size is exactly where the score becomes 3; in float64 it is one byte less.
    nodes = [node("holder", {"app:v1": 2687699539}), *(node(f"n{place}") for place in range(48))]
    assert Lab(nodes).score(ImageLocality, pod("app:v1"), nodes=["holder"]).raw == {"holder": 2}


def test_an_image_counts_under_each_of_its_names_and_the_last_size_of_a_name_counts():
    item = node("a")
    item["status"]["images"] = [
        {"names": ["app:v1", "app@sha256:1"], "sizeBytes": 100 * MB},
        {"names": ["app:v1"], "sizeBytes": 1000 * MB},
        {"names": None, "sizeBytes": MB},
    ]
    lab = Lab([item])
    assert lab.score(ImageLocality, pod("app:v1")).raw == {"a": 100}
    assert lab.score(ImageLocality, pod("app@sha256:1")).raw == {"a": 7}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("nginx", "nginx:latest", id="a bare name gets the tag latest"),
        pytest.param("nginx:1.27", "nginx:1.27", id="a tag is kept"),
        pytest.param("host:5000/nginx", "host:5000/nginx:latest", id="a port is no tag"),
        pytest.param("host:5000/nginx:1", "host:5000/nginx:1", id="a tag after a port is kept"),
        pytest.param("nginx@sha256:12", "nginx@sha256:12", id="a digest stays as it is"),
    ],
)
def test_normalize_image_name(name, expected):
    assert normalize_image_name(name) == expected


# --- the cache under random events -----------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
IMAGES = st.dictionaries(st.sampled_from(["x:1", "y:1", "z:1"]), st.integers(0, 5000).map(lambda size: size * MB // 3))
EVENT = st.tuples(st.sampled_from(["apply", "apply", "delete"]), st.builds(node, NAMES, IMAGES))
PLACED = st.builds(lambda name, on: make_pod(name, node=on), st.sampled_from(["p", "q"]), NAMES)
POD_EVENT = st.tuples(st.sampled_from(["apply", "delete"]), PLACED)
CROWD = st.sampled_from([[], [("apply", node(f"n{place}", {"x:1": 900 * MB})) for place in range(70)]])
STREAM = st.lists(EVENT | POD_EVENT)
EVENTS = st.tuples(STREAM, CROWD, STREAM).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(ImageStates, events, lab)
    check_inverse_leaves_no_trace(ImageStates, lab)


def score_of(images, info, infos):
    """Return the score of one node by upstream's formula, written for one node."""
    total = 0
    for image in images:
        sizes = {name: each.size_bytes for each in info.images for name in each.names}
        holders = sum(any(image in each.names for each in other.images) for other in infos)
        if image in sizes:
            total += int(float(sizes[image]) * (float(holders) / float(len(infos))))
    most = 1000 * MB * len(images)
    return 100 * (min(max(total, 23 * MB), most) - 23 * MB) // (most - 23 * MB)


@given(EVENTS, st.lists(st.sampled_from(["x:1", "y:1", "z:1", "w:1"]), min_size=1, max_size=4))
def test_columns_agree_with_the_formula_node_by_node(events, images):
    lab = Lab()
    lab.mirror.cache(ImageStates)
    for verb, item in events:
        getattr(lab, verb)(item)
    infos = list(lab.nodes().infos())
    expected = {info.name: score_of(images, info, infos) for info in infos}
    assert lab.score(ImageLocality, pod(*images)).raw == expected
