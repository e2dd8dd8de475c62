"""Types for the arguments of algorithms: names as Kubernetes takes them, and lists that must not be empty."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, Field

from extender.model.name import is_qualified_name

T = TypeVar("T")


def _not_empty(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("must not be empty")
    return values


def _label_key(text: str) -> str:
    if not is_qualified_name(text):
        raise ValueError(f"must be a label key, got {text!r}")
    return text


def _annotation_key(text: str) -> str:
    # Kubernetes folds the case of annotation keys before it looks at them (source: ValidateAnnotations of 1.36).
    if not is_qualified_name(text.lower()):
        raise ValueError(f"must be an annotation key, got {text!r}")
    return text


def _resource_name(text: str) -> str:
    if not is_qualified_name(text):
        raise ValueError(f"{text!r} is not a resource name")
    return text


# Pydantic's own bound would find a list too short whose items are at fault.
NonEmpty: TypeAlias = Annotated[tuple[T, ...], AfterValidator(_not_empty), Field(json_schema_extra={"minItems": 1})]
"""A list of at least one."""

LabelKey: TypeAlias = Annotated[str, AfterValidator(_label_key)]
"""The key of a label."""

AnnotationKey: TypeAlias = Annotated[str, AfterValidator(_annotation_key)]
"""The key of an annotation."""

ResourceName: TypeAlias = Annotated[str, AfterValidator(_resource_name)]
"""The name of a resource."""
