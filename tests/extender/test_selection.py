"""Columns of selected rows agree with the matchers asked node by node, whatever becomes of the nodes."""

from hypothesis import given
from hypothesis import strategies as st

from extender.framework.selection import select_rows, select_rows_of_term
from extender.model.object import Labels, NodeSelector, NodeSelectorTerm, Requirement
from extender.model.selector import compile_node_selector, compile_node_selector_term
from extender.testing.lab import Lab
from extender.testing.maker import make_node

KEYS, VALUES, NAMES = st.sampled_from(["x", "y"]), st.sampled_from(["1", "2", "3"]), st.sampled_from(["a", "b", "c"])
EXPRESSIONS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1)),
    st.builds(Requirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Requirement, KEYS, st.sampled_from(["Gt", "Lt"]), VALUES.map(lambda value: [value])),
)
FIELDS = st.builds(
    Requirement,
    st.sampled_from(["metadata.name", "metadata.name", "spec.other"]),
    st.sampled_from(["In", "NotIn"]),
    NAMES.map(lambda name: [name]),
)
TERMS = st.builds(NodeSelectorTerm, st.lists(EXPRESSIONS, max_size=2), st.lists(FIELDS, max_size=2))
SELECTORS = st.none() | st.builds(NodeSelector, st.lists(TERMS, max_size=3))
LABELS = st.dictionaries(KEYS, VALUES)
NODES = st.builds(lambda name, labels: make_node(name, labels=labels), NAMES, LABELS)
CHANGES = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), NODES))


@given(CHANGES, CHANGES, SELECTORS, LABELS, TERMS)
def test_columns_agree_with_the_matchers(
    before: list, after: list, selector: NodeSelector | None, labels: Labels, term: NodeSelectorTerm
) -> None:
    matcher, matched_term = compile_node_selector(selector, labels), compile_node_selector_term(term)
    lab = Lab()
    for changes in (before, after):
        for verb, item in changes:
            getattr(lab, verb)(item)
        nodes = lab.nodes()
        infos = list(nodes.infos())
        assert nodes.take(select_rows(nodes.table, matcher)).tolist() == [
            matcher.matches(info.labels, info.name) for info in infos
        ]
        assert nodes.take(select_rows_of_term(nodes.table, matched_term)).tolist() == [
            matched_term.matches(info.labels, info.name) for info in infos
        ]
