"""PodTopologySpread by columns agrees with kube-scheduler's rules written for one node and one pod at a time."""

from math import floor, log

from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.pod_topology_spread import MISSING_LABEL_REASON, REASON, PodTopologySpread
from extender.framework import SKIP
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

ZONE, HOSTNAME, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"
SERVICE = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}
SYSTEM = [
    {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
]

LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from(["web", "api"]), "rev": st.sampled_from("12")})


@st.composite
def nodes(draw):
    place = st.fixed_dictionaries(
        {"pool": st.sampled_from("xy")},
        optional={ZONE: st.sampled_from(["a", "b", ""]), RACK: st.sampled_from("12"), HOSTNAME: st.just("shared")},
    )
    made = []
    for name in [f"n{number}" for number in range(draw(st.integers(1, 7)))]:
        item = make_node(name, labels=draw(place), taints=draw(st.sampled_from([[], [], ["only=x:NoSchedule"]])))
        if draw(st.integers(0, 5)) == 0:
            del item["metadata"]["labels"][HOSTNAME]
        made.append(item)
    return made


@st.composite
def pods(draw):
    made = []
    for number in range(draw(st.integers(0, 12))):
        item = make_pod(
            f"p{number}",
            node=f"n{draw(st.integers(0, 7))}",
            labels=draw(LABELS),
            namespace=draw(st.sampled_from(["default", "default", "other"])),
        )
        if draw(st.integers(0, 5)) == 0:
            item["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        made.append(item)
    return made


SELECTORS = st.sampled_from([None, {}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "web", "rev": "1"}}])
RULE = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 3),
        "topologyKey": st.sampled_from([ZONE, HOSTNAME, RACK]),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
    },
)
OWN_RULE = st.builds(
    lambda rule, selector, keys: {**rule, "labelSelector": selector, "matchLabelKeys": keys},
    RULE,
    SELECTORS,
    st.sampled_from([None, ["rev"]]),
)
INCOMING = st.builds(
    lambda labels, selector, tolerations, rules: make_pod(
        "in", labels=labels, node_selector=selector, tolerations=tolerations, topologySpreadConstraints=rules
    ),
    LABELS,
    st.sampled_from([{}, {}, {"pool": "x"}]),
    st.sampled_from([[], ["only"]]),
    st.lists(OWN_RULE, max_size=3) | st.just([]),
)
ARGS = st.one_of(
    st.just({}),
    st.lists(RULE, max_size=2, unique_by=lambda rule: (rule["topologyKey"], rule["whenUnsatisfiable"])).map(
        lambda rules: {"defaultingType": "List", "defaultConstraints": rules}
    ),
)


class Oracle:
    """The rules, for one pod on plain objects; owned pods are those of the service."""

    def __init__(self, nodes, pods, incoming, args, action):
        self.nodes, self.pods, self.incoming = nodes, pods, incoming
        self.labels = incoming["metadata"].get("labels", {})
        self.own = incoming["spec"].get("topologySpreadConstraints")
        self.system = args.get("defaultingType") != "List"
        rules = self.own or self._defaults(args)
        self.rules = [rule for rule in rules if rule["whenUnsatisfiable"] == action]

    def _defaults(self, args):
        if self.labels.get("app") != "web":
            return []
        rules = SYSTEM if self.system else args["defaultConstraints"]
        return [{**rule, "labelSelector": {"matchLabels": {"app": "web"}}} for rule in rules]

    def wanted(self, rule):
        """Return the labels a rule selects by; None where it selects nothing."""
        selector = rule.get("labelSelector")
        if selector is None:
            return None
        keys = {key: self.labels[key] for key in rule.get("matchLabelKeys") or () if key in self.labels}
        wanted = selector.get("matchLabels", {})
        if any(wanted.get(key, value) != value for key, value in keys.items()):
            return None
        return {**wanted, **keys}

    def selects(self, rule, labels):
        wanted = self.wanted(rule)
        return wanted is not None and wanted.items() <= labels.items()

    def count(self, rule, node):
        if not self.wanted(rule):
            return 0
        return sum(
            pod["spec"]["nodeName"] == node["metadata"]["name"]
            and pod["metadata"]["namespace"] == "default"
            and "deletionTimestamp" not in pod["metadata"]
            and self.selects(rule, pod["metadata"].get("labels", {}))
            for pod in self.pods
        )

    def has_all(self, node):
        return all(rule["topologyKey"] in node["metadata"]["labels"] for rule in self.rules)

    def included(self, rule, node):
        wanted = self.incoming["spec"].get("nodeSelector", {})
        excluded = not wanted.items() <= node["metadata"]["labels"].items()
        if excluded and rule.get("nodeAffinityPolicy", "Honor") == "Honor":
            return False
        tainted = "taints" in node["spec"] and not self.incoming["spec"].get("tolerations")
        return not (tainted and rule.get("nodeTaintsPolicy") == "Honor")

    def refusals(self):
        if not self.rules:
            return SKIP
        found = {}
        for node in self.nodes:
            reason = next((reason for rule in self.rules if (reason := self.refusal(rule, node))), None)
            if reason:
                found[node["metadata"]["name"]] = reason
        return found

    def refusal(self, rule, node):
        key = rule["topologyKey"]
        if key not in node["metadata"]["labels"]:
            return MISSING_LABEL_REASON
        domains = {}
        for other in self.nodes:
            if self.has_all(other) and self.included(rule, other):
                value = other["metadata"]["labels"][key]
                domains[value] = domains.get(value, 0) + self.count(rule, other)
        least = min(domains.values(), default=0)
        if len(domains) < rule.get("minDomains", 1):
            least = 0
        here = domains.get(node["metadata"]["labels"][key], 0)
        return REASON if here + self.selects(rule, self.labels) - least > rule["maxSkew"] else None

    def scores(self, candidates):
        if not self.rules:
            return SKIP
        all_labels = bool(self.own) or not self.system
        scored = [node for node in candidates if not all_labels or self.has_all(node)]
        raw = {node["metadata"]["name"]: 0 for node in candidates}
        for node in scored:
            total = sum(
                self.score(rule, node, scored, all_labels)
                for rule in self.rules
                if rule["topologyKey"] in node["metadata"]["labels"]
            )
            raw[node["metadata"]["name"]] = floor(total + 0.5)
        return raw, self.normalized(raw, {node["metadata"]["name"] for node in scored})

    def score(self, rule, node, scored, all_labels):
        key = rule["topologyKey"]
        if key == HOSTNAME:
            count, size = self.count(rule, node), len(scored)
        else:
            here = node["metadata"]["labels"][key]
            count = sum(
                self.count(rule, other)
                for other in self.nodes
                if other["metadata"]["labels"].get(key, "") == here
                and self.included(rule, other)
                and (not all_labels or self.has_all(other))
            )
            size = len({other["metadata"]["labels"].get(key, "") for other in scored})
        return count * log(size + 2) + (rule["maxSkew"] - 1)

    @staticmethod
    def normalized(raw, scored):
        values = [score for name, score in raw.items() if name in scored]
        most, least = max(values, default=0), min(values, default=0)
        brought = {name: 100 * (most + least - score) // most if most else 100 for name, score in raw.items()}
        return {name: score if name in scored else 0 for name, score in brought.items()}


@settings(max_examples=200)
@given(nodes(), pods(), INCOMING, ARGS)
def test_filter_agrees_with_the_rules_node_by_node(nodes, pods, incoming, args):
    found = Lab([*nodes, *pods, SERVICE]).filter(PodTopologySpread, incoming, args)
    if found is not SKIP:
        for outcome in found.values():
            assert outcome.resolvable == (outcome.text == REASON)
        found = {name: outcome.text for name, outcome in found.items()}
    assert found == Oracle(nodes, pods, incoming, args, "DoNotSchedule").refusals()


@settings(max_examples=200)
@given(nodes(), pods(), INCOMING, ARGS, st.data())
def test_scores_agree_with_the_rules_node_by_node(nodes, pods, incoming, args, data):
    names = data.draw(st.lists(st.sampled_from([node["metadata"]["name"] for node in nodes]), min_size=1, unique=True))
    found = Lab([*pods, *nodes, SERVICE]).score(PodTopologySpread, incoming, args, names)
    by_name = {node["metadata"]["name"]: node for node in nodes}
    expected = Oracle(nodes, pods, incoming, args, "ScheduleAnyway").scores([by_name[name] for name in names])
    assert (found if found is SKIP else (found.raw, found.normalized)) == expected
