"""Laws of the embedded API server's storage, over random changes."""

from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.apiserver import StatusError, Storage

CHANGES = st.lists(
    st.tuples(st.sampled_from(["create", "update", "delete"]), st.sampled_from("abcd"), st.integers(0, 2)), max_size=30
)


def make_map(name, value):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": str(value)}}


def apply_change(storage, change):
    """Do a change; return the code of its refusal, None if it was done."""
    kind, name, value = change
    try:
        if kind == "delete":
            storage.delete("configmaps", name)
        else:
            getattr(storage, kind)("configmaps", make_map(name, value))
    except StatusError as error:
        return error.code
    return None


def contents(objects):
    return {obj["metadata"]["name"]: obj["data"]["value"] for obj in objects}


@given(CHANGES)
def test_every_remembered_version_can_be_listed(changes):
    storage = Storage([make_map("a", 0)])
    table = storage.table(storage.catalogue.named("configmaps"))
    states = {storage.resource_version: table.at(storage.resource_version)}
    for change in changes:
        apply_change(storage, change)
        states[storage.resource_version] = sorted(table.entries.values(), key=lambda entry: entry.key)
    table_again = [table.at(version) for version in states]
    assert table_again == list(states.values())


@given(CHANGES)
def test_folding_the_changes_gives_the_state(changes):
    storage = Storage([make_map("a", 0)])
    table = storage.table(storage.catalogue.named("configmaps"))
    folded = dict(table.entries)
    start = table.end
    for change in changes:
        apply_change(storage, change)
    events = table.read(start, len(changes))
    for event in events:
        assert (event.type == "ADDED") == (event.previous is None)
        assert folded.get(event.entry.key) == event.previous
        if event.type == "DELETED":
            del folded[event.entry.key]
        else:
            folded[event.entry.key] = event.entry
    assert folded == table.entries
    versions = [event.entry.resource_version for event in events]
    assert versions == sorted(set(versions))


@given(CHANGES)
def test_state_is_that_of_a_plain_dictionary(changes):
    storage = Storage()
    model = {}
    for change in changes:
        kind, name, value = change
        refusal = {(True, True): 409, (False, False): 404}.get((kind == "create", name in model))
        assert apply_change(storage, change) == refusal
        if kind == "delete":
            model.pop(name, None)
        elif kind == "update":
            model |= {name: str(value)} if name in model else {}
        else:
            model.setdefault(name, str(value))
    assert contents(storage.list("configmaps")) == model


def test_stored_objects_are_copies():
    storage = Storage()
    given_map = make_map("a", 1)
    created = storage.create("configmaps", given_map)
    given_map["data"]["value"] = created["data"]["value"] = "changed"
    assert contents(storage.list("configmaps")) == {"a": "1"}
    assert "uid" not in given_map["metadata"]


def test_version_of_an_object_is_replaced_only_where_it_stands():
    storage = Storage()
    tricky = make_map("a", 1)
    tricky["metadata"]["annotations"] = {"resourceVersion": "2"}
    tricky["data"]["resourceVersion"] = "2"
    created = storage.create("configmaps", tricky)
    assert created["metadata"]["resourceVersion"] == "2"
    updated = storage.update("configmaps", {**tricky, "data": {"resourceVersion": "2", "more": "1"}})
    assert updated["metadata"]["resourceVersion"] == "3"
    assert updated["metadata"]["annotations"] == {"resourceVersion": "2"}
    assert updated["data"] == {"resourceVersion": "2", "more": "1"}


def test_update_keeps_what_the_server_owns_and_fills_in_the_rest():
    storage = Storage()
    pod = {"metadata": {"name": "p", "generation": 3}, "spec": {"containers": []}}
    created = storage.create("pods", pod)
    updated = storage.update("pods", {"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n"}})
    for name in ("uid", "creationTimestamp", "generation"):
        assert updated["metadata"][name] == created["metadata"][name]
    assert updated["spec"] == {**created["spec"], "nodeName": "n"}
