"""Placed affinity terms under random events: the laws of the cache, and agreement with asking pod by pod.

The answers are compared with rules spelled out over plain objects, one node, one pod and one term at a time.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.inter_pod_affinity import (
    AFFINITY_REASON,
    ANTI_AFFINITY_REASON,
    EXISTING_ANTI_AFFINITY_REASON,
    InterPodAffinity,
)
from extender.framework import SKIP, PlacedTerms
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
KINDS = ("podAffinity", "podAntiAffinity")


def namespace(name, labels):
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def expression(key, operator, *values):
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def term(topology_key, selector, namespaces, namespace_selector):
    return {
        "topologyKey": topology_key,
        "labelSelector": selector,
        "namespaces": namespaces,
        "namespaceSelector": namespace_selector,
    }


def pod(name, on, labels, space, groups):
    affinity = {
        kind: {
            REQUIRED: required,
            PREFERRED: [{"weight": weight, "podAffinityTerm": each} for weight, each in preferred],
        }
        for kind, (required, preferred) in zip(KINDS, groups, strict=True)
        if required or preferred
    }
    return make_pod(name, node=on, labels=labels, namespace=space, uid=f"{space}-{name}", affinity=affinity)


KEYS, VALUES, SPACES = st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), st.sampled_from(["n", "m", "unknown"])
LABELS = st.dictionaries(KEYS, VALUES)
SELECTORS = st.one_of(
    st.none(),
    st.just({}),
    st.builds(lambda value: {"matchLabels": {"x": value}}, VALUES),
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.builds(
        lambda found: {"matchExpressions": found},
        st.lists(
            st.builds(expression, KEYS, st.sampled_from(["In", "NotIn"]), VALUES)
            | st.builds(expression, KEYS, st.sampled_from(["Exists", "DoesNotExist"]))
            | st.builds(expression, KEYS, st.just("In"), VALUES, VALUES),
            max_size=2,
        ),
    ),
)
TERMS = st.builds(
    term,
    st.sampled_from(["zone", "rack"]),
    SELECTORS,
    st.just([]) | st.lists(SPACES, max_size=2),
    st.none() | SELECTORS,
)
GROUPS = st.tuples(st.lists(TERMS, max_size=2), st.lists(st.tuples(st.sampled_from([1, 5]), TERMS), max_size=2))
BOTH_GROUPS = st.tuples(GROUPS, GROUPS) | st.just((([], []), ([], [])))
NAMES = st.sampled_from(["a", "b", "c", "d"])
NODES = st.builds(
    lambda name, labels: make_node(name, labels=labels),
    NAMES,
    st.dictionaries(st.sampled_from(["zone", "rack"]), VALUES),
)
PODS = st.builds(
    pod, st.sampled_from(["p", "q", "r", "s"]), st.none() | NAMES, LABELS, st.sampled_from(["n", "m"]), BOTH_GROUPS
)
SPACE_OBJECTS = st.builds(namespace, st.sampled_from(["n", "m"]), LABELS)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["apply", "apply", "apply", "delete"]), NODES | PODS | PODS | SPACE_OBJECTS), max_size=30
)
INCOMING = st.builds(pod, st.just("incoming"), st.none(), LABELS, st.sampled_from(["n", "m"]), BOTH_GROUPS)
START = [
    *(namespace(name, {"x": value}) for name, value in (("n", "1"), ("m", "2"))),
    make_node("a", labels={"zone": "1", "rack": "1"}),
    make_node("b", labels={"zone": "2", "rack": "1"}),
    make_node("c", labels={"zone": "2"}),
    *(pod(f"on-{on}", on, {"x": value}, "n", (([], []), ([], []))) for on, value in (("a", "1"), ("b", "2"))),
]


@settings(deadline=None)
@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(PlacedTerms, events, lab)
    check_inverse_leaves_no_trace(PlacedTerms, lab)


@settings(deadline=None)
@given(EVENTS)
def test_the_cache_is_empty_when_all_pods_are_gone(events):
    lab = Lab()
    cache = lab.mirror.cache(PlacedTerms)
    empty = cache.dump()
    for verb, item in events:
        getattr(lab, verb)(item)
    lab.delete(*(item for _, item in events if item["kind"] == "Pod"))
    assert cache.dump() == empty


def test_pods_of_one_owner_share_a_term_and_a_term_said_twice_counts_twice():
    twice = term("zone", {"matchLabels": {"x": "1"}}, [], None)
    group = (([twice, twice], []), ([], []))
    lab = Lab([pod("p", "a", {}, "n", group), pod("q", "b", {}, "n", group), pod("r", "b", {}, "m", group)])
    cache = lab.mirror.cache(PlacedTerms)
    found = {each.namespaces: names for each, names in cache.dump()["required affinity"].items()}
    assert found == {frozenset("n"): ["a", "a", "b", "b"], frozenset("m"): ["b", "b"]}
    assert cache.dump()["pods"] == {"n": 2, "m": 1}
    lab.delete(pod("p", "a", {}, "n", group), pod("q", "b", {}, "n", group))
    assert [each.namespaces for each in cache.dump()["required affinity"]] == [frozenset("m")]


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({}, id="by default"),
        pytest.param({"hardPodAffinityWeight": 0}, id="without weight for required affinity"),
        pytest.param({"ignorePreferredTermsOfExistingPods": True}, id="without preferences of placed pods"),
    ],
)
@settings(deadline=None, max_examples=150)
@given(before=EVENTS, after=EVENTS, incoming=INCOMING)
def test_answers_agree_with_the_rules_spelled_out(args, before, after, incoming):
    lab, rules = Lab(), Rules()
    lab.filter(InterPodAffinity, incoming)
    for events in ([("apply", item) for item in START], before, after):
        for verb, item in events:
            getattr(lab, verb)(item)
            getattr(rules, verb)(item)
        found = lab.filter(InterPodAffinity, incoming, args)
        assert found is SKIP or {name: outcome.text for name, outcome in found.items()} == rules.refused(incoming)
        assert found is not SKIP or not rules.refused(incoming)
        scores = lab.score(InterPodAffinity, incoming, args)
        expected = rules.scores(incoming, args)
        assert (scores is SKIP and expected is None) or scores.raw == expected


class Rules:
    """What is right, found by asking every node about every pod."""

    def __init__(self):
        self.objects = {}

    def apply(self, item):
        self.objects[self._key(item)] = item

    def delete(self, item):
        self.objects.pop(self._key(item), None)

    def refused(self, incoming):
        return {node["metadata"]["name"]: why for node in self._all("Node") if (why := self._refusal(incoming, node))}

    def scores(self, incoming, args):
        """Return raw scores by node, or None where no term is about any pod in a domain."""
        own = [(self._sign(kind) * weight, each) for kind in KINDS for weight, each in preferred(incoming, kind)]
        if args.get("ignorePreferredTermsOfExistingPods") and not own:
            return None
        domains = {}
        for placed, node in self._placed():
            found = [entry for entry in own if self._about(entry[1], incoming, placed, listed=True)]
            theirs = [(self._sign(kind) * weight, each) for kind in KINDS for weight, each in preferred(placed, kind)]
            hard = args.get("hardPodAffinityWeight", 1)
            theirs += [(hard, each) for each in required(placed, "podAffinity") if hard]
            found += [entry for entry in theirs if self._about(entry[1], placed, incoming)]
            for weight, each in found:
                pair = self._domain(node, each["topologyKey"])
                if pair:
                    domains[pair] = domains.get(pair, 0) + weight
        if not domains:
            return None
        return {
            node["metadata"]["name"]: sum(domains.get(pair, 0) for pair in node["metadata"]["labels"].items())
            for node in self._all("Node")
        }

    def _refusal(self, incoming, node):
        near, far = required(incoming, "podAffinity"), required(incoming, "podAntiAffinity")
        if near and not self._near(incoming, near, node):
            return AFFINITY_REASON
        for placed, where in self._placed():
            if any(self._about(each, incoming, placed, listed=True) and self._same(each, node, where) for each in far):
                return ANTI_AFFINITY_REASON
        for placed, where in self._placed():
            terms = required(placed, "podAntiAffinity")
            if any(self._about(each, placed, incoming) and self._same(each, node, where) for each in terms):
                return EXISTING_ANTI_AFFINITY_REASON
        return None

    def _near(self, incoming, terms, node):
        if not all(self._domain(node, each["topologyKey"]) for each in terms):
            return False
        matching = [
            where
            for placed, where in self._placed()
            if all(self._about(each, incoming, placed, listed=True) for each in terms)
        ]
        if not any(self._domain(where, each["topologyKey"]) for where in matching for each in terms):
            return all(self._about(each, incoming, incoming) for each in terms)
        return all(any(self._same(each, node, where) for where in matching) for each in terms)

    def _about(self, each, owner, other, *, listed=False):
        """Say whether a term is about a pod; ``listed`` where only namespaces that are known can be selected."""
        own, space = owner["metadata"]["namespace"], other["metadata"]["namespace"]
        selector, names = each["namespaceSelector"], each["namespaces"]
        known = ("Namespace", space) in self.objects
        labels = self.objects[("Namespace", space)]["metadata"]["labels"] if known else {}
        chosen = selects(selector, labels) and (known or not listed or selector_is_empty(selector))
        in_space = space == own if not names and selector is None else space in names or chosen
        return in_space and selects(each["labelSelector"], other["metadata"].get("labels", {}))

    def _placed(self):
        for item in self._all("Pod"):
            node = self.objects.get(("Node", item["spec"].get("nodeName")))
            if node:
                yield item, node

    def _all(self, kind):
        return [item for (found, *_), item in self.objects.items() if found == kind]

    def _same(self, each, node, other):
        pair = self._domain(node, each["topologyKey"])
        return pair is not None and pair == self._domain(other, each["topologyKey"])

    @staticmethod
    def _domain(node, key):
        labels = node["metadata"]["labels"]
        return (key, labels[key]) if key in labels else None

    @staticmethod
    def _sign(kind):
        return 1 if kind == "podAffinity" else -1

    @staticmethod
    def _key(item):
        meta = item["metadata"]
        return (item["kind"], *([meta["namespace"]] if item["kind"] == "Pod" else []), meta["name"])


def required(item, kind):
    return item["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])


def preferred(item, kind):
    found = item["spec"].get("affinity", {}).get(kind, {}).get(PREFERRED, [])
    return [(each["weight"], each["podAffinityTerm"]) for each in found]


def selector_is_empty(selector):
    return selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions"))


def selects(selector, labels):
    if selector is None:
        return False
    means = {
        "In": lambda key, values: labels.get(key) in values,
        "NotIn": lambda key, values: labels.get(key) not in values,
        "Exists": lambda key, _: key in labels,
        "DoesNotExist": lambda key, _: key not in labels,
    }
    wanted = selector.get("matchLabels", {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        means[each["operator"]](each["key"], each.get("values", ())) for each in selector.get("matchExpressions", ())
    )
