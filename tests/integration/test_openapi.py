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


def test_every_verb_is_documented_with_both_of_its_outcomes(document: Any) -> None:
    assert list(document["paths"]) == [f"/{verb}" for verb in schema.VERBS]
    for methods in document["paths"].values():
        (operation,) = methods.values()
        assert operation["summary"]
        assert operation["requestBody"]["required"] is True
        assert list(operation["responses"]) == ["200", "default"]


def test_every_example_is_what_its_schema_says(document: Any) -> None:
    found = list(contents(document))
    assert len(found) == 3 * len(schema.VERBS)
    for _, content in found:
        validate(document, content["schema"], content["example"])


def test_schemas_refuse_what_is_not_of_their_type(document: Any) -> None:
    for _, content in contents(document):
        with pytest.raises(jsonschema_rs.ValidationError):
            validate(document, content["schema"], "text")


def test_every_reference_leads_somewhere(document: Any) -> None:
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= document["components"]["schemas"].keys()
    assert {"ExtenderArgs", "ExtenderFilterResult", "MetaVictims", "Pod", "Node", "Failure"} <= named


@pytest.mark.parametrize("verb", schema.VERBS)
def test_the_example_of_a_request_is_answered_as_documented(service: RunningService, document: Any, verb: str) -> None:
    operation = document["paths"][f"/{verb}"]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
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
