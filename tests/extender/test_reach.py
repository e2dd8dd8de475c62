"""What reaches what is found as by asking node by node, however nodes and things come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework.reach import EVERYWHERE, Reach, Thing, compile_terms, compile_topologies
from extender.model.object import NodeSelector, NodeSelectorTerm, Requirement
from extender.model.storage import TopologyRequirement, TopologyTerm
from extender.testing.lab import Lab
from extender.testing.maker import make_node

HOST, ZONE = "kubernetes.io/hostname", "zone"


def node(place, zone="z0"):
    return make_node(f"n{place}", labels={ZONE: zone})


def selector(*terms):
    """Each term has label values by key; its conditions must all hold."""
    return NodeSelector(
        [NodeSelectorTerm([Requirement(key, "In", values) for key, values in term.items()]) for term in terms]
    )


MANY = [node(place, f"z{place % 2}") for place in range(150)]
TERMS = [
    EVERYWHERE,
    compile_terms(NodeSelector([])),
    compile_terms(selector({ZONE: ["z0"]})),
    compile_terms(selector({ZONE: ["z0", "z1"]})),
    compile_terms(selector({ZONE: ["z0"]}, {HOST: ["n3"]})),
    compile_terms(selector({ZONE: ["z0"], HOST: ["n2", "n3"]})),
    compile_terms(selector({HOST: ["nowhere"]})),
    *(compile_terms(selector({HOST: [f"n{place}"]})) for place in range(4)),
]
THINGS = [Thing(kind, terms, number) for kind in ("a", "b") for number in (1, 2) for terms in TERMS]
ADD = st.tuples(st.just("add"), st.sampled_from(THINGS))
REMOVE = st.tuples(st.just("remove"), st.integers(0, 9))
RELABEL = st.tuples(st.just("apply"), st.builds(node, st.integers(0, 5), st.sampled_from(["z0", "z1"])))
DELETE = st.tuples(st.just("delete"), st.builds(node, st.integers(0, 5)))
ASK = st.just(("ask", None))


@given(
    st.lists(st.one_of(ADD, ADD, REMOVE, REMOVE, RELABEL, DELETE, ASK, ASK), min_size=20, max_size=60), st.booleans()
)
def test_things_are_reached_as_their_terms_say(steps, many):
    lab = Lab(MANY if many else [])
    reach = Reach(lab.mirror.table)
    held = dict.fromkeys(THINGS, 0)
    for verb, item in [*steps, ("ask", None)]:
        if verb == "add":
            reach.add(item)
            held[item] += 1
        elif verb == "remove" and any(held.values()):
            there = [thing for thing, times in held.items() if times]
            gone = there[item % len(there)]
            reach.remove(gone)
            held[gone] -= 1
        elif verb == "ask":
            check(lab, reach, {thing: times for thing, times in held.items() if times})
        elif verb in ("apply", "delete"):
            getattr(lab, verb)(item)


def check(lab, reach, held):
    table, pairs, columns = lab.mirror.table, reach.pairs(), reach.columns()
    assert len(reach) == len(held)
    slots = {thing: slot for slot, thing in reach.occupied()}
    assert slots.keys() == held.keys()
    assert set(pairs.slots.tolist()) | columns.keys() <= set(slots.values())
    for thing, slot in slots.items():
        found = pairs.rows[pairs.slots == slot].tolist()
        assert len(set(found)) == len(found)
        if slot in columns:
            assert not found
            found = columns[slot].nonzero()[0].tolist()
        expected = {
            info.name
            for info in lab.nodes().infos()
            if any(all(each.accepts(info.labels.get(each.key)) for each in term) for term in thing.terms)
        }
        assert {table.name(row) for row in found if table.present[row]} == expected
        assert (reach.counts[slot], reach.numbers[slot]) == (held[thing], thing.number)
        assert reach.kinds.values[reach.kinds.codes[slot]] == thing.kind


def test_room_is_given_to_others():
    reach = Reach(Lab([]).mirror.table)
    room = len(reach.counts)
    for thing in THINGS:
        reach.add(thing)
        reach.pairs()
        reach.remove(thing)
    assert len(reach.counts) == room
    assert len(reach.pairs().slots) == len(reach.columns()) == 0


def test_things_in_one_place_share_a_column():
    lab = Lab(MANY)
    reach = Reach(lab.mirror.table)
    for number in range(3):
        reach.add(Thing("a", TERMS[2], number))
        reach.add(Thing("a", TERMS[3], number))
    assert len({id(column) for column in reach.columns().values()}) == 2


@pytest.mark.parametrize(
    ("allowed", "terms"),
    [
        pytest.param(None, EVERYWHERE, id="a class that does not say makes volumes everywhere"),
        pytest.param([], EVERYWHERE, id="a class with an empty list does so as well"),
        pytest.param([TopologyTerm(None)], (), id="an empty term allows nothing"),
        pytest.param(
            [TopologyTerm([TopologyRequirement(ZONE, ["z0"])])], TERMS[2], id="a term allows the values it names"
        ),
        pytest.param([TopologyTerm([TopologyRequirement(ZONE, [])])], (), id="a key without values allows nothing"),
    ],
)
def test_the_topologies_of_a_class(allowed, terms):
    assert compile_topologies(allowed) == terms


def test_fields_of_nodes_do_not_restrict_volumes():
    by_name = [Requirement("metadata.name", "In", ["n1"])]
    assert compile_terms(NodeSelector([NodeSelectorTerm(None, by_name)])) == EVERYWHERE
