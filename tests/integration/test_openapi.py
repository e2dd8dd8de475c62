"""The OpenAPI document: complete, with examples that hold, and a service that lives up to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from extender import schema
from extender.testing import make_node
from extender.testing.cluster import RunningService, running_service


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=[make_node("node-1"), make_node("node-2")]) as running:
        yield running


@pytest.fixture(scope="module")
def document(service: RunningService) -> Any:
    response = httpx.get(f"{service.url}/openapi.json")
    assert response.status_code == 200
    return response.json()


def validate(document: Any, kind: Any, value: Any) -> None:
    """Check a value against one of the document's schemas."""
    jsonschema_rs.validator_for({**kind, "components": document["components"]}).validate(value)


def contents(document: Any) -> Iterator[tuple[str, Any]]:
    for verb, methods in document["paths"].items():
        operation = methods["post"]
        yield verb, operation["requestBody"]["content"]["application/json"]
        for response in operation["responses"].values():
            yield verb, response["content"]["application/json"]


def test_every_verb_is_documented_with_all_of_its_outcomes(document: Any) -> None:
    assert list(document["paths"]) == [f"/{verb}" for verb in schema.VERBS]
    for verb in schema.VERBS:
        (operation,) = document["paths"][f"/{verb}"].values()
        assert operation["summary"]
        assert operation["requestBody"]["required"] is True
        by_status = verb in ("prioritize", "preempt")
        statuses = ["400", "403", "408", "413", "500", "503", "504"] if by_status else []
        assert list(operation["responses"]) == ["200", *statuses, "default"]
        assert all(response["description"] for response in operation["responses"].values())


def test_every_example_is_what_its_schema_says(document: Any) -> None:
    found = list(contents(document))
    examples = [(verb, content, each["value"]) for verb, content in found for each in content["examples"].values()]
    assert len(examples) > len(found) > 3 * len(schema.VERBS)
    for _, content, example in examples:
        validate(document, content["schema"], example)


def test_schemas_refuse_what_is_not_of_their_type(document: Any) -> None:
    for _, content in contents(document):
        with pytest.raises(jsonschema_rs.ValidationError):
            validate(document, content["schema"], "text")


LOOSE = {
    "filter": [
        {"NodeNames": ["n1"]},
        {"Nodes": None, "NodeNames": [], "FailedNodes": None, "FailedAndUnresolvableNodes": {}, "Error": ""},
        {"Nodes": {"items": None}, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""},
    ],
    "prioritize": [None, [{"Host": "n1"}], [{"Host": "n1", "Score": 11}], [{"Host": "n1", "Score": -1}]],
    "bind": [{}, {"Error": None}],
    "preempt": [
        {},
        {"NodeNameToMetaVictims": None},
        {"NodeNameToMetaVictims": {"n1": None}},
        *(
            {"NodeNameToMetaVictims": {"n1": {"Pods": pods, "NumPDBViolations": violations}}}
            for pods, violations in ((None, 0), ([], 0), ([None], 0), ([{"UID": ""}], 0), ([{"UID": "u"}], 2**63))
        ),
    ],
}
"""Replies that would mislead kube-scheduler, or crash it."""


@pytest.mark.parametrize("verb", schema.VERBS)
def test_schemas_of_replies_refuse_what_is_never_sent(document: Any, verb: str) -> None:
    reply = document["paths"][f"/{verb}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    for value in LOOSE[verb]:
        with pytest.raises(jsonschema_rs.ValidationError):
            validate(document, reply, value)


@pytest.mark.parametrize("verb", schema.VERBS)
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"Pod":{}}'], ids=repr)
def test_failures_are_told_as_documented(service: RunningService, document: Any, verb: str, content: bytes) -> None:
    response = httpx.post(f"{service.url}/{verb}", content=content)
    documented = document["paths"][f"/{verb}"]["post"]["responses"][str(response.status_code)]
    validate(document, documented["content"]["application/json"]["schema"], response.json())
    assert response.json()["Error"]


def test_every_reference_leads_somewhere(document: Any) -> None:
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= document["components"]["schemas"].keys()
    assert {"ExtenderArgs", "ExtenderFilterResult", "MetaVictims", "Pod", "Node", "Failure"} <= named


@pytest.mark.parametrize("verb", schema.VERBS)
def test_the_example_of_a_request_is_answered_as_documented(service: RunningService, document: Any, verb: str) -> None:
    operation = document["paths"][f"/{verb}"]["post"]
    example = operation["requestBody"]["content"]["application/json"]["examples"]["request"]["value"]
    response = httpx.post(f"{service.url}/{verb}", json=example)
    assert response.status_code == 200
    validate(document, operation["responses"]["200"]["content"]["application/json"]["schema"], response.json())


@pytest.mark.parametrize("verb", schema.VERBS)
def test_whatever_the_schema_allows_is_answered_or_refused_in_words(
    service: RunningService, document: Any, verb: str
) -> None:
    operation = document["paths"][f"/{verb}"]["post"]
    reply_schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    requests = schemathesis.openapi.from_dict(document)[f"/{verb}"]["POST"].as_strategy()

    @given(requests, st.booleans())
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],  # what fails here is told by the service, and takes minutes to shrink
        suppress_health_check=list(HealthCheck),
    )
    def check(asked: Any, about_known_nodes: bool) -> None:
        known = {"Nodes": None, "NodeNames": ["node-1", "node-2"]} if about_known_nodes else {}
        response = httpx.post(f"{service.url}/{verb}", json={**asked.body, **known})
        if response.status_code == 200:
            validate(document, reply_schema, response.json())
        else:
            assert verb in ("prioritize", "preempt")
            assert response.status_code == 400, response.text
            assert response.json()["Error"]

    check()
    sample = service.runtime.metrics.registry.get_sample_value
    assert not sample("scheduler_extender_requests_total", {"verb": verb, "result": "InternalError"})
