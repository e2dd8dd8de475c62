"""A Policy in the making, and what becomes of it: entries with their arguments, and the profile that is bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.source import bind_profiles


def bind(folder: Path, **policy: Any) -> Profile:
    """Bind what a Policy, written as JSON, describes."""
    file = folder / "policy.json"
    file.write_text(json.dumps({"kind": "Policy", "apiVersion": "v1", **policy}))
    configuration = ExtenderConfiguration.model_validate({"algorithmSource": {"policyFile": str(file)}})
    (profile,) = bind_profiles(Registry(), Mirror(), configuration).values()
    return profile


def findings(folder: Path, **policy: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        bind(folder, **policy)
    problems = refusal.value.problems
    assert all(problem.startswith(f"{folder / 'policy.json'}: ") for problem in problems)
    return [problem.removeprefix(f"{folder / 'policy.json'}: ") for problem in problems]


def named(*entries: str | dict[str, Any], weight: int | None = None) -> list[dict[str, Any]]:
    weighed = {} if weight is None else {"weight": weight}
    return [{"name": entry, **weighed} if isinstance(entry, str) else {**weighed, **entry} for entry in entries]


def region(*labels: str) -> dict[str, Any]:
    return {"argument": {"serviceAffinity": {"labels": list(labels)}}}


def presence(*labels: str, presence: bool = False) -> dict[str, Any]:
    return {"argument": {"labelsPresence": {"labels": list(labels), "presence": presence}}}


def preference(label: str, *, presence: bool = False) -> dict[str, Any]:
    return {"argument": {"labelPreference": {"label": label, "presence": presence}}}


def spreading(label: str) -> dict[str, Any]:
    return {"argument": {"serviceAntiAffinity": {"label": label}}}


def ratio(*points: tuple[int, int], **resources: int) -> dict[str, Any]:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    listed = [{"name": name, "weight": weight} for name, weight in resources.items()]
    return {"argument": {"requestedToCapacityRatioArguments": {"shape": shape, "resources": listed}}}
