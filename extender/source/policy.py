"""A Policy, as kube-scheduler read it up to 1.22, as a profile.

Predicates and priorities that are left out are the default ones; an empty list leaves only the mandatory predicates, or
no priority. Custom names are free: the argument says what they are. Source: legacy_registry.go of 1.22.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, model_validator

from extender.config import explain
from extender.errors import ConfigurationError
from extender.framework.loader import default_set
from extender.framework.registry import nearest
from extender.registration.dialect import POLICY
from extender.section import Section
from extender.source.document import read_document
from extender.source.draft import Draft, SourcedProfile
from extender.source.legacy_name import MISNAMED, PREDICATES, PRIORITIES, Counterpart

_log = logging.getLogger(__name__)

SCORED_LABELS: Final = {"labelPreference": "NodeLabel", "serviceAntiAffinity": "ServiceAffinity"}
"""Arguments of priorities that can stand in several entries, each for one label; they become one priority."""


class _Labels(Section):
    labels: list[str]


class _LabelsPresence(_Labels):
    presence: bool = False


class _Label(Section):
    label: Annotated[str, Field(min_length=1)]


class _LabelPreference(_Label):
    presence: bool = False


class _Ratio(Section):
    shape: list[Any]
    resources: list[Any] | None = None


class _Argument(Section):
    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.given) != 1:
            keys = ", ".join(str(one.alias) for one in type(self).model_fields.values())
            raise ValueError(f"must have exactly one of {keys}")
        return self

    @property
    def given(self) -> dict[str, Any]:
        """What is there, by key."""
        return self.model_dump(by_alias=True, exclude_none=True)


class _PredicateArgument(_Argument):
    service_affinity: _Labels | None = None
    labels_presence: _LabelsPresence | None = None


class _PriorityArgument(_Argument):
    service_anti_affinity: _Label | None = None
    label_preference: _LabelPreference | None = None
    requested_to_capacity_ratio_arguments: _Ratio | None = None


class _Predicate(Section):
    name: Annotated[str, Field(min_length=1)]
    argument: _PredicateArgument | None = None


class _Priority(Section):
    name: Annotated[str, Field(min_length=1)]
    weight: Annotated[int, Field(ge=1, le=1_000_000)]
    argument: _PriorityArgument | None = None


class _Policy(Section):
    api_version: str
    kind: str
    predicates: list[_Predicate] | None = None
    priorities: list[_Priority] | None = None
    extenders: list[Any] = Field(default=[])
    hard_pod_affinity_symmetric_weight: Annotated[int, Field(ge=0, le=100)] = 0
    """How much a required affinity of placed pods counts as a preference; 0 leaves the default."""
    always_check_all_predicates: bool = False


def read_policy(file: str) -> SourcedProfile:
    """Return the profile that a Policy describes.

    Raises:
        ConfigurationError: all findings at once, each with the file and the place in it.
    """
    tree, _ = read_document(file, POLICY)
    try:
        policy = _Policy.read(tree)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {line}" for line in explain(error)) from None
    if policy.extenders:
        _log.info("extenders are left to kube-scheduler", extra={"file": file, "extenders": len(policy.extenders)})
    return _Translation(file, policy).profile()


class _Translation:
    def __init__(self, file: str, policy: _Policy) -> None:
        self._file = file
        self._policy = policy
        self._draft = Draft()
        self._problems: list[str] = []
        self._labels: dict[str, list[tuple[int, str]]] = {}
        self._shape = ""

    def profile(self) -> SourcedProfile:
        default = default_set()
        if self._policy.predicates is None:
            for name in default.predicates:
                self._draft.add_predicate(name)
        else:
            self._predicates(self._policy.predicates)
        if self._policy.priorities is None:
            for name, weight in default.priorities.items():
                self._draft.add_priority(name, weight)
        else:
            self._priorities(self._policy.priorities)
        if self._policy.hard_pod_affinity_symmetric_weight:
            args = {"hardPodAffinityWeight": self._policy.hard_pod_affinity_symmetric_weight}
            self._draft.argue("InterPodAffinity", args, "hardPodAffinitySymmetricWeight")
        if self._problems:
            raise ConfigurationError(f"{self._file}: {problem}" for problem in self._problems)
        return self._draft.finish(self._file, "policy", check_all=self._policy.always_check_all_predicates)

    def _predicates(self, entries: list[_Predicate]) -> None:
        places: dict[str, str] = {}
        for number, entry in enumerate(entries):
            place = f"predicates[{number}]"
            argument = entry.argument.given if entry.argument else {}
            if "serviceAffinity" in argument:
                places.setdefault("CheckServiceAffinity", place)
                labels = argument["serviceAffinity"]["labels"]
                self._draft.lengthen("ServiceAffinity", "affinityLabels", labels, f"{place}.argument")
            elif "labelsPresence" in argument:
                places.setdefault("CheckNodeLabelPresence", place)
                given = argument["labelsPresence"]
                arg = "presentLabels" if given["presence"] else "absentLabels"
                self._draft.lengthen("NodeLabel", arg, given["labels"], f"{place}.argument")
            elif self._is_known(entry.name, PREDICATES, "predicate", place):
                places.setdefault(entry.name, place)
        for name, counterpart in PREDICATES.items():
            if name in places:
                self._note(name, counterpart, places[name])
                for algorithm in counterpart.algorithms:
                    self._draft.add_predicate(algorithm, places[name])

    def _priorities(self, entries: list[_Priority]) -> None:
        for number, entry in enumerate(entries):
            place = f"priorities[{number}]"
            argument = entry.argument.given if entry.argument else {}
            for key, value in argument.items():
                if key in SCORED_LABELS:
                    self._prefer(key, value, entry.weight, place)
                else:
                    self._rate(key, value, entry.weight, place)
            if not argument and self._is_known(entry.name, PRIORITIES, "priority", place):
                counterpart = PRIORITIES[entry.name]
                self._note(entry.name, counterpart, place)
                for algorithm in counterpart.algorithms:
                    self._draft.add_priority(algorithm, entry.weight, place)

    def _prefer(self, key: str, value: Mapping[str, Any], weight: int, place: str) -> None:
        """Add one label to a priority that scores by the mean over its labels, and its weight to the priority's."""
        algorithm, held = SCORED_LABELS[key], self._labels.setdefault(key, [])
        if held and held[0][0] != weight:
            self._problems.append(
                f"{place}.weight: must be {held[0][0]} as in {held[0][1]}, got {weight}; all of {key} weigh the same"
            )
        held.append((weight, place))
        if key == "serviceAntiAffinity":
            arg = "antiAffinityLabelsPreference"
        else:
            arg = "presentLabelsPreference" if value["presence"] else "absentLabelsPreference"
        self._draft.lengthen(algorithm, arg, [value["label"]], f"{place}.argument")
        self._draft.add_priority(algorithm, weight * len(held), held[0][1])

    def _rate(self, key: str, value: Mapping[str, Any], weight: int, place: str) -> None:
        """Add the priority that scores by a shape, of which a Policy can have one."""
        if self._shape:
            self._problems.append(f"{place}.argument.{key}: stands in {self._shape} already; a Policy can have one")
        self._shape = self._shape or place
        self._draft.argue("RequestedToCapacityRatio", value, f"{place}.argument.{key}")
        self._draft.add_priority("RequestedToCapacityRatio", weight, place)

    def _is_known(self, name: str, known: Mapping[str, Counterpart], what: str, place: str) -> bool:
        if name not in known:
            near = nearest(MISNAMED.get(name, name), known)
            self._problems.append(f"{place}.name: no {what} named {name!r}{near}")
        return name in known

    def _note(self, name: str, counterpart: Counterpart, place: str) -> None:
        for algorithm, args in counterpart.args.items():
            self._draft.assume(algorithm, args, place)
        if counterpart.moved:
            _log.info(
                "not quite what it was",
                extra={
                    "place": f"{self._file}: {place}",
                    "was": name,
                    "is": counterpart.algorithms,
                    "why": counterpart.reason,
                },
            )
