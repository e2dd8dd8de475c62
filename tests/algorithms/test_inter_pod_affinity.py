"""InterPodAffinity: a table of cases for each of its rules."""

import pytest
from pydantic import ValidationError

from algorithms.inter_pod_affinity import (
    AFFINITY_REASON,
    ANTI_AFFINITY_REASON,
    EXISTING_ANTI_AFFINITY_REASON,
    InterPodAffinity,
    InterPodAffinityArgs,
)
from extender.errors import AlgorithmError
from extender.framework import SKIP
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

FAR, NEAR, UNWANTED = AFFINITY_REASON, ANTI_AFFINITY_REASON, EXISTING_ANTI_AFFINITY_REASON
RESOLVABLE = {FAR: False, NEAR: True, UNWANTED: True}

WEB, API, DB = {"app": "web"}, {"app": "api"}, {"app": "db"}
NOT_RED = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
NO_TEAM = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
BROKEN = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


def node(name, **labels):
    return make_node(name, labels=labels)


def namespace(name, **labels):
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def term(labels=None, key="zone", **fields):
    selector = {} if labels is None else {"labelSelector": {"matchLabels": labels}}
    return {"topologyKey": key, **selector, **fields}


def pod(name="p", on=None, labels=None, *, near=(), far=(), like=(), dislike=(), space="default", **fields):
    """Return a pod; ``near`` and ``far`` are required terms, ``like`` and ``dislike`` pairs of weight and term."""
    affinity = {
        kind: {
            REQUIRED: list(required),
            PREFERRED: [{"weight": weight, "podAffinityTerm": each} for weight, each in preferred],
        }
        for kind, required, preferred in (("podAffinity", near, like), ("podAntiAffinity", far, dislike))
        if required or preferred
    }
    return make_pod(name, node=on, labels=labels, affinity=affinity, namespace=space, **fields)


def terminating(made):
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


NODES = [
    node("a1", zone="a", rack="1"),
    node("a2", zone="a", rack="2"),
    node("b1", zone="b", rack="1"),
    node("none"),
]
SPACES = [namespace("default"), namespace("red", team="red"), namespace("blue", team="blue")]
EVERYWHERE = dict.fromkeys(("a1", "a2", "b1", "none"), FAR)


@pytest.mark.parametrize(
    ("placed", "incoming", "refused"),
    [
        pytest.param([pod("x", "a1", WEB)], pod(), SKIP, id="a pod without terms, and none about it"),
        pytest.param([pod("x", "a1", like=[(1, term({}))])], pod(), SKIP, id="preferred terms refuse nothing"),
        pytest.param(
            [pod("x", "a1", WEB)],
            pod(near=[term(WEB)]),
            {"b1": FAR, "none": FAR},
            id="affinity allows the domains of the pods it is about, and no node outside all domains",
        ),
        pytest.param([], pod(near=[term(WEB)]), EVERYWHERE, id="affinity to pods that do not exist"),
        pytest.param([pod("x", labels=WEB)], pod(near=[term(WEB)]), EVERYWHERE, id="a pod that waits is not there"),
        pytest.param(
            [], pod(labels=WEB, near=[term(WEB)]), {"none": FAR}, id="the first of its kind goes to any domain"
        ),
        pytest.param(
            [],
            pod(labels=WEB, near=[term(WEB), term(WEB, "rack"), term(WEB, "row")]),
            EVERYWHERE,
            id="the first of its kind needs all the labels on its node",
        ),
        pytest.param(
            [],
            pod(labels=WEB, near=[term(WEB), term(API)]),
            EVERYWHERE,
            id="not the first where a term is not about it",
        ),
        pytest.param(
            [],
            pod(labels=WEB, near=[term(WEB, namespaces=["red"])]),
            EVERYWHERE,
            id="not the first where the terms are about another namespace",
        ),
        pytest.param(
            [pod("x", "b1", WEB)],
            pod(labels=WEB, near=[term(WEB)]),
            {"a1": FAR, "a2": FAR, "none": FAR},
            id="the second of its kind follows the first",
        ),
        pytest.param(
            [pod("x", "none", WEB), pod("y", "gone", WEB)],
            pod(labels=WEB, near=[term(WEB)]),
            {"none": FAR},
            id="pods outside all domains, or on nodes that do not exist, are no first of their kind",
        ),
        pytest.param(
            [pod("x", "none", WEB)],
            pod(labels=WEB, near=[term(WEB), term(WEB, "kubernetes.io/hostname")]),
            EVERYWHERE,
            id="a pod that is in a domain of one of the keys is the first of its kind",
        ),
        pytest.param(
            [pod("x", "a1", {**WEB, "tier": "1"})],
            pod(near=[term(WEB), term({"tier": "1"}, "rack")]),
            {"a2": FAR, "b1": FAR, "none": FAR},
            id="one pod that both terms are about, with a domain of each",
        ),
        pytest.param(
            [pod("x", "a1", WEB), pod("y", "a1", {"tier": "1"})],
            pod(near=[term(WEB), term({"tier": "1"}, "rack")]),
            EVERYWHERE,
            id="two pods of which each term is about another do not do",
        ),
        pytest.param(
            [pod("x", "a1", WEB), pod("y", "b1", WEB)],
            pod(near=[term(WEB), term(WEB, "rack")]),
            {"a2": FAR, "none": FAR},
            id="zone and rack may be those of different pods that all terms are about",
        ),
        pytest.param(
            [pod("x", "a1", WEB)],
            pod(far=[term(WEB)]),
            {"a1": NEAR, "a2": NEAR},
            id="anti-affinity refuses domains, and no node outside all domains",
        ),
        pytest.param(
            [pod("x", "a1", WEB), pod("y", "b1", API)],
            pod(far=[term(WEB, "kubernetes.io/hostname"), term(API)]),
            {"a1": NEAR, "b1": NEAR},
            id="each term of anti-affinity refuses by itself",
        ),
        pytest.param([], pod(far=[term(WEB)]), {}, id="anti-affinity to pods that do not exist"),
        pytest.param([], pod(labels=WEB, far=[term(WEB)]), {}, id="anti-affinity to itself"),
        pytest.param(
            [pod("x", "a1", far=[term(WEB)])],
            pod(labels=WEB),
            {"a1": UNWANTED, "a2": UNWANTED},
            id="a placed pod keeps others out of its domain",
        ),
        pytest.param(
            [pod("x", "a1", far=[term(WEB)])], pod(labels=API), SKIP, id="a placed pod whose terms are about others"
        ),
        pytest.param(
            [pod("x", "none", far=[term(WEB)]), pod("y", "gone", far=[term(WEB)])],
            pod(labels=WEB),
            SKIP,
            id="a placed pod outside all domains keeps nobody out",
        ),
        pytest.param(
            [pod("x", "a1", far=[term(WEB), term(API, "kubernetes.io/hostname")])],
            pod(labels=API),
            {"a1": UNWANTED},
            id="one of two terms of a placed pod",
        ),
        pytest.param(
            [
                pod("x", "a1", WEB, far=[term(WEB, "kubernetes.io/hostname")]),
                pod("y", "a2", {**WEB, "tier": "1"}, far=[term(WEB, "kubernetes.io/hostname")]),
            ],
            pod(labels=WEB, near=[term(WEB)], far=[term({"tier": "1"}, "kubernetes.io/hostname")]),
            {"a1": UNWANTED, "a2": NEAR, "b1": FAR, "none": FAR},
            id="a node has the first reason only",
        ),
        pytest.param(
            [terminating(pod("x", "a1", WEB, far=[term(API)]))],
            pod(labels=API, near=[term(WEB)]),
            {"a1": UNWANTED, "a2": UNWANTED, "b1": FAR, "none": FAR},
            id="pods that are being deleted count",
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red")], pod(near=[term(WEB)]), EVERYWHERE, id="a pod of another namespace"
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red"), pod("y", "b1", WEB)],
            pod(far=[term(WEB, namespaces=["red"])]),
            {"a1": NEAR, "a2": NEAR},
            id="namespaces that are named replace its own",
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red"), pod("y", "b1", WEB, space="blue")],
            pod(far=[term(WEB, "rack", namespaceSelector={"matchLabels": {"team": "red"}}, namespaces=["none"])]),
            {"a1": NEAR, "b1": NEAR},
            id="namespaces that are selected by label",
        ),
        pytest.param(
            [pod("x", "a2", WEB, space="unknown")],
            pod(far=[term(WEB, "rack", namespaceSelector={})]),
            {"a2": NEAR},
            id="the empty namespace selector selects all, known or not",
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red"), pod("y", "b1", WEB, space="blue")],
            pod(far=[term(WEB, namespaceSelector=NOT_RED)]),
            {"b1": NEAR},
            id="a namespace selector leaves out what it excludes by NotIn",
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red"), pod("y", "b1", WEB)],
            pod(near=[term(WEB, namespaceSelector=NO_TEAM)]),
            {"a1": FAR, "a2": FAR, "none": FAR},
            id="a namespace selector leaves out what it excludes by DoesNotExist",
        ),
        pytest.param(
            [
                pod("x", "a1", far=[term(WEB, namespaceSelector=NOT_RED)]),
                pod("y", "b1", far=[term(WEB, namespaceSelector=NO_TEAM)]),
            ],
            pod(labels=WEB, space="blue"),
            {"a1": UNWANTED, "a2": UNWANTED},
            id="namespace selectors of placed pods see the labels of the pod's namespace",
        ),
        pytest.param(
            [pod("x", "a1", far=[term(WEB)], space="red"), pod("y", "b1", far=[term(WEB)])],
            pod(labels=WEB),
            {"b1": UNWANTED},
            id="terms of placed pods are about their own namespace",
        ),
        pytest.param(
            [pod("x", "a1", far=[term(WEB, namespaces=["blue", "default"])], space="red")],
            pod(labels=WEB),
            {"a1": UNWANTED, "a2": UNWANTED},
            id="terms of placed pods name namespaces",
        ),
        pytest.param(
            [pod("x", "a1", far=[term()]), pod("y", "a1")],
            pod(far=[term()]),
            {},
            id="a term without label selector is about nothing",
        ),
        pytest.param(
            [pod("x", "a1", far=[term({})]), pod("y", "b1")],
            pod(far=[term({})]),
            {"a1": NEAR, "a2": NEAR, "b1": NEAR},
            id="an empty label selector is about everything",
        ),
        pytest.param(
            [pod("x", "a1", {**WEB, "version": "1"}), pod("y", "b1", {**WEB, "version": "2"})],
            pod(labels={**WEB, "version": "1"}, far=[term(WEB, matchLabelKeys=["version"])]),
            {"a1": NEAR, "a2": NEAR, "b1": NEAR},
            id="keys to match are taken to be in the selector already",
        ),
        pytest.param(
            [pod("x", "a1", WEB, far=[{"topologyKey": "zone", "labelSelector": BROKEN}], near=[term(API)])],
            pod(labels=WEB),
            SKIP,
            id="terms of placed pods that cannot be read keep nobody out",
        ),
        pytest.param(
            [pod("x", "edge", WEB)],
            pod(near=[term(WEB, "kubernetes.io/hostname")]),
            EVERYWHERE,
            id="a domain without any node",
        ),
    ],
)
def test_filter(placed, incoming, refused):
    found = Lab([*NODES, *SPACES, *placed]).filter(InterPodAffinity, incoming)
    if refused is SKIP:
        assert found is SKIP
        return
    assert {name: outcome.reasons for name, outcome in found.items()} == {name: (why,) for name, why in refused.items()}
    assert all(outcome.resolvable == RESOLVABLE[outcome.text] for outcome in found.values())


def test_pods_count_whether_or_not_their_node_is_a_candidate():
    lab = Lab([*NODES, pod("x", "a1", WEB), pod("y", "b1", far=[term(API)])])
    incoming = pod(labels=API, near=[term(WEB)])
    assert lab.filter(InterPodAffinity, incoming, nodes=["a2", "b1"]).keys() == {"b1"}
    assert lab.filter(InterPodAffinity, pod(far=[term(WEB)]), nodes=["none", "a2"]).keys() == {"a2"}
    assert lab.score(InterPodAffinity, pod(like=[(3, term(WEB))]), nodes=["b1", "a2"]).raw == {"b1": 0, "a2": 3}


def test_an_empty_label_value_is_a_domain_of_its_own():
    lab = Lab([node("x", zone=""), node("y", zone=""), node("z", zone="z"), node("none"), pod("q", "x", WEB)])
    assert lab.filter(InterPodAffinity, pod(far=[term(WEB)])).keys() == {"x", "y"}


@pytest.mark.parametrize(
    "incoming",
    [
        pytest.param(pod(near=[term(labelSelector=BROKEN)]), id="required affinity"),
        pytest.param(pod(dislike=[(1, term(labelSelector=BROKEN))]), id="preferred anti-affinity"),
        pytest.param(pod(far=[term(WEB, namespaceSelector=BROKEN)]), id="a namespace selector"),
    ],
)
def test_a_pod_with_a_term_that_cannot_be_read_fits_nowhere(incoming):
    lab = Lab(NODES)
    found = lab.filter(InterPodAffinity, incoming)
    assert found.keys() == EVERYWHERE.keys()
    assert all(outcome.text.startswith("parsing pod: ") and not outcome.resolvable for outcome in found.values())
    with pytest.raises(AlgorithmError, match="'Like'"):
        lab.score(InterPodAffinity, incoming)


@pytest.mark.parametrize(
    ("placed", "incoming", "args", "raw"),
    [
        pytest.param([pod("x", "a1", WEB)], pod(), {}, SKIP, id="a pod without terms, and none about it"),
        pytest.param(
            [pod("x", "a1", API)], pod(like=[(5, term(WEB))]), {}, SKIP, id="preferred pods that do not exist"
        ),
        pytest.param([pod("x", "none", WEB)], pod(like=[(5, term(WEB))]), {}, SKIP, id="preferred pods in no domain"),
        pytest.param(
            [pod("x", "a1", WEB), pod("y", "a2", WEB), pod("z", "b1", WEB)],
            pod(like=[(5, term(WEB))]),
            {},
            [10, 10, 5, 0],
            id="each pod that is preferred adds the weight in its domain",
        ),
        pytest.param(
            [pod("x", "a1", WEB)],
            pod(dislike=[(5, term(WEB)), (2, term(WEB, "rack"))]),
            {},
            [-7, -5, -2, 0],
            id="terms add up, and anti-affinity subtracts",
        ),
        pytest.param(
            [pod("x", "a1", WEB)],
            pod(like=[(5, term(WEB))], dislike=[(5, term(WEB))]),
            {},
            [0, 0, 0, 0],
            id="weights that cancel out are scores of zero and not no opinion",
        ),
        pytest.param(
            [pod("x", "a1", like=[(5, term(WEB))]), pod("y", "a2", dislike=[(2, term(WEB, "rack"))])],
            pod(labels=WEB),
            {},
            [5, 3, 0, 0],
            id="preferred terms of placed pods count as well",
        ),
        pytest.param(
            [pod("x", "a1", like=[(5, term(WEB))], space="red"), pod("y", "b1", like=[(5, term(WEB))], space="blue")],
            pod(labels=WEB, space="red"),
            {},
            [5, 5, 0, 0],
            id="terms of placed pods are about their own namespace",
        ),
        pytest.param(
            [pod("x", "a1", like=[(5, term(WEB, namespaceSelector=NOT_RED))])],
            pod(labels=WEB, space="red"),
            {},
            SKIP,
            id="namespace selectors of placed pods see the labels of the pod's namespace",
        ),
        pytest.param(
            [pod("x", "a1", WEB, space="red"), pod("y", "b1", WEB, space="blue")],
            pod(like=[(5, term(WEB, namespaceSelector=NOT_RED))]),
            {},
            [0, 0, 5, 0],
            id="a namespace selector leaves out what it excludes by NotIn",
        ),
        pytest.param(
            [pod("x", "a1", near=[term(WEB), term(WEB, "rack")])],
            pod(labels=WEB),
            {},
            [2, 1, 1, 0],
            id="required affinity of placed pods counts one a term",
        ),
        pytest.param(
            [pod("x", "a1", near=[term(WEB), term(API)])],
            pod(labels=WEB),
            {},
            [1, 1, 0, 0],
            id="required affinity of placed pods counts term by term",
        ),
        pytest.param(
            [pod("x", "a1", near=[term(WEB)])],
            pod(labels=WEB),
            {"hardPodAffinityWeight": 50},
            [50, 50, 0, 0],
            id="required affinity of placed pods counts as configured",
        ),
        pytest.param(
            [pod("x", "a1", near=[term(WEB)])],
            pod(labels=WEB),
            {"hardPodAffinityWeight": 0},
            SKIP,
            id="required affinity of placed pods counts for nothing if configured so",
        ),
        pytest.param(
            [pod("x", "a1", WEB, far=[term(API)])],
            pod(labels=API, near=[term(WEB)], far=[term(DB)]),
            {},
            SKIP,
            id="other required terms are no preference",
        ),
        pytest.param(
            [pod("x", "a1", like=[(5, term(WEB))], near=[term(WEB)])],
            pod(labels=WEB, near=[term(WEB)]),
            {"ignorePreferredTermsOfExistingPods": True},
            SKIP,
            id="all terms of placed pods are ignored if configured so",
        ),
        pytest.param(
            [pod("x", "a1", like=[(5, term(WEB))], near=[term(WEB)])],
            pod(labels=WEB, like=[(1, term(DB))]),
            {"ignorePreferredTermsOfExistingPods": True},
            [6, 6, 0, 0],
            id="terms of placed pods are never ignored for a pod that has preferences itself",
        ),
        pytest.param(
            [terminating(pod("x", "a1", WEB, like=[(5, term(API))]))],
            pod(labels=API, like=[(2, term(WEB))]),
            {},
            [7, 7, 0, 0],
            id="pods that are being deleted count",
        ),
    ],
)
def test_score(placed, incoming, args, raw):
    found = Lab([*NODES, *SPACES, *placed]).score(InterPodAffinity, incoming, args)
    assert found is SKIP if raw is SKIP else found.raw == dict(zip(("a1", "a2", "b1", "none"), raw, strict=True))


@pytest.mark.parametrize(
    ("weights", "normalized"),
    [
        pytest.param((1, 2, 4), (0, 33, 100), id="between the lowest and the highest the score is cut"),
        pytest.param((-4, -3, -1), (0, 33, 100), id="scores below zero are shifted"),
        pytest.param((-1, 1, 2), (0, 66, 100), id="scores on both sides of zero"),
        pytest.param((7, 7, 7), (0, 0, 0), id="equal scores are all zero"),
    ],
)
def test_normalize(weights, normalized):
    names = ("a1", "a2", "b1")
    likes = [
        (weight, term({"on": name}, "kubernetes.io/hostname")) for name, weight in zip(names, weights, strict=True)
    ]
    incoming = pod(
        like=[(weight, each) for weight, each in likes if weight > 0],
        dislike=[(-weight, each) for weight, each in likes if weight < 0],
    )
    lab = Lab([*NODES, *(pod(f"on-{name}", name, {"on": name}) for name in names)])
    found = lab.score(InterPodAffinity, incoming, nodes=names)
    assert tuple(found.raw.values()) == weights
    assert tuple(found.normalized.values()) == normalized


def test_no_candidates_have_no_scores():
    lab = Lab([*NODES, pod("x", "a1", WEB)])
    found = lab.score(InterPodAffinity, pod(like=[(1, term(WEB))]), nodes=[])
    assert (found.raw, found.normalized) == ({}, {})


def test_the_arguments_are_those_of_kube_scheduler():
    assert InterPodAffinityArgs().hard_pod_affinity_weight == 1
    assert not InterPodAffinityArgs().ignore_preferred_terms_of_existing_pods
    for weight in (-1, 101):
        with pytest.raises(ValidationError, match="hardPodAffinityWeight"):
            InterPodAffinityArgs.model_validate({"hardPodAffinityWeight": weight})
