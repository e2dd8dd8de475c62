"""How the conventions for devices read what nodes and pods write: every number bounded, every fault a ValueError."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from extender.errors import QuantityError
from extender.framework.device import MOST_AMOUNT, MOST_DEVICES, UNLIMITED, Device
from extender.model.node import amount
from extender.model.object import Container, ResourceRequirements

T = TypeVar("T")
Amount = Annotated[int, Meta(ge=0, le=MOST_AMOUNT)]
Count = Annotated[int, Meta(ge=0, le=UNLIMITED)]

TOO_MUCH: Final = MOST_AMOUNT + 1
"""Stands for all that no device can have."""

UNREADABLE: Final = (ValueError, QuantityError)
"""What reading a declaration or a request raises."""


def decode(text: str, kind: type[T]) -> T:
    """Decode JSON; msgspec's errors are ValueErrors, but for nesting that is too deep.

    Raises:
        ValueError: the text is no JSON, or not of this kind.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def check_devices(devices: list[Device]) -> list[Device]:
    """Return ``devices`` if they can be told apart and are not too many.

    Raises:
        ValueError: they cannot, or are.
    """
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"more than {MOST_DEVICES} devices")
    if len({device.id for device in devices}) != len(devices):
        raise ValueError("two devices have the same id")
    return devices


def read_asked(container: Container, resource: str) -> int | None:
    """Return a container's limit, else its request, None where it has neither; more than any device has is cut short.

    Raises:
        QuantityError: it cannot be read.
    """
    resources = container.resources or ResourceRequirements()
    for stated in (resources.limits, resources.requests):
        if stated is not None and resource in stated:
            return max(0, min(amount(resource, stated[resource]), TOO_MUCH))
    return None


def split_parts(listed: str) -> tuple[str, ...]:
    """Return what stands between commas, in lower case."""
    return tuple(part.strip().lower() for part in listed.split(",") if part.strip())


def is_amount(text: str) -> bool:
    """Say whether a text is a number of decimal digits that a device can have."""
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= MOST_AMOUNT
