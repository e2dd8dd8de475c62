"""Devices that a node has by the number of an extended resource; what each of them has, the configuration says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from extender.framework.algorithm import Args
from extender.framework.device import MOST_AMOUNT, MOST_DEVICES

Amount = Annotated[int, Field(ge=0, le=MOST_AMOUNT)]

_NAME: Final = re.compile(r"(.+)-(0|[1-9][0-9]?)")


class DeviceKind(Args):
    """What each device of an extended resource has."""

    memory: Amount = Field(default=0, alias="memoryMiB")
    """In MiB."""

    cores: Amount = 100
    """In percent of a device."""

    model: str = ""


def name_device(resource: str, place: int) -> str:
    """Return what the device of an extended resource at ``place`` is called: ``example.com/gpu-0``."""
    return f"{resource}-{place}"


def find_place(device: str, amounts: Mapping[str, int]) -> int | None:
    """Undo ``name_device`` where a node has so many of the resource; None for devices that are called otherwise."""
    found = _NAME.fullmatch(device)
    if found is None or int(found[2]) >= min(amounts.get(found[1], 0), MOST_DEVICES):
        return None
    return int(found[2])
