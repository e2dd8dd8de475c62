"""What a profile runs: predicates by name, weights of priorities, and arguments."""

from __future__ import annotations

from typing import Any

from extender.framework.runner import Profile


def names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]


def weights(profile: Profile) -> dict[str, int]:
    return {weighted.priority.name: weighted.weight for weighted in profile.priorities}


def args(profile: Profile, algorithm: str) -> Any:
    bound = [*profile.predicates, *(weighted.priority for weighted in profile.priorities)]
    (found,) = {one.args for one in bound if one.name == algorithm}
    return found
