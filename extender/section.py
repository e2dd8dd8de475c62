"""Sections of the configuration that can be changed while the service runs.

They say which algorithms run, as profiles or as a file of kube-scheduler in their place, for which pods none do, and
how a change is taken over.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none."""

DEFAULT_PROVIDER: Final = "DefaultProvider"
"""The provider of profiles that name none."""

ALL: Final = "*"
"""In a list of names: all that the provider has."""


_EXACT: Final = frozenset({"int", "float", "bool"})


def _mark_exact(schema: Any) -> None:
    if isinstance(schema, list):
        for each in schema:
            _mark_exact(each)
    elif isinstance(schema, dict):
        is_schema = isinstance(schema.get("type"), str)  # else it is a map of fields, whatever they are called
        if is_schema and schema["type"] in _EXACT:
            schema.setdefault("strict", True)
        for key, value in schema.items():
            if not (is_schema and key in ("default", "metadata")):
                _mark_exact(value)


class ExactModel(BaseModel):
    """A model that takes numbers and truths as such, and no text in their place; a float may be written as an int."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /) -> CoreSchema:
        """Return the schema with strict numbers and truths; were all of it strict, no list could stand for a tuple."""
        schema = handler(source)
        _mark_exact(schema)
        return schema


class Section(ExactModel):
    """Root of every section: camelCase in the file, unknown keys refused, null as if left out, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Leave out what is null, as a section is whose keys are all commented out."""
        if not isinstance(given, dict):
            return given
        known = {field.alias for field in cls.model_fields.values()}
        return {key: value for key, value in given.items() if value is not None or key not in known}

    @classmethod
    def read(cls, tree: Any) -> Self:
        """Return what a file describes; keys are taken as they are spelt there, and not as attributes are called.

        Raises:
            ValidationError: something in it cannot be used.
        """
        return cls.model_validate(tree, by_alias=True, by_name=False)


class AlgorithmEntry(Section):
    """One algorithm of a profile: the name of one that is installed, or ``module:Class``.

    The name ``*`` stands for all of the provider that the list does not name; what it says of how they run holds for
    each.
    """

    name: Annotated[str, Field(min_length=1)]
    args: dict[str, Any] | None = None
    """Arguments; what is valid is up to the algorithm. Given once, they hold for its predicate and its priority.

    Without any entry that gives some they are the provider's, or else the defaults; none, ``{}``, are the defaults.
    """
    mode: Literal["enforce", "shadow"] = "enforce"
    """Whether what it says counts; in shadow it is only counted and logged."""
    on_error: Literal["fail", "ignore"] = "fail"
    """What its failure does: the request fails, or it has no opinion on the pod."""
    time_budget_millis: Annotated[float, Field(gt=0, le=60_000)] | None = None
    """Runs that take longer are reported; they are not cut short."""

    @model_validator(mode="before")
    @classmethod
    def _no_bare_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(f'must be a mapping; write {{name: "{given}"}}')
        return given


class PriorityEntry(AlgorithmEntry):
    """One priority of a profile."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How much it counts; as in the provider where left out, or else the algorithm's default weight."""


class Predicates(Section):
    """Which predicates run, in this order; all of the provider where left out.

    Mandatory ones always run, and first where they are not named.
    """

    enabled: list[AlgorithmEntry] | None = None
    disabled: list[str] = []
    """Names to take out; ``*`` takes out all of the provider, and leaves those named in ``enabled``."""


class Priorities(Section):
    """Which priorities score; all of the provider where left out."""

    enabled: list[PriorityEntry] | None = None
    disabled: list[str] = []
    """Names to take out; ``*`` takes out all of the provider, and leaves those named in ``enabled``."""


class ProfileSection(Section):
    """The algorithms for the pods of one scheduler name."""

    scheduler_name: Annotated[str, Field(min_length=1)] = DEFAULT_SCHEDULER
    """The ``spec.schedulerName`` of the pods that it serves."""
    provider: Annotated[str, Field(min_length=1)] = DEFAULT_PROVIDER
    """A set of algorithms, by its name or as ``module:PROVIDER``, which the lists below change."""
    predicates: Predicates = Predicates()
    priorities: Priorities = Priorities()
    always_check_all_predicates: bool = False
    """Whether a node that one predicate refuses is shown to the others, so that all their reasons are reported."""


class ExemptSection(Section):
    """Pods that pass through: all their nodes are kept, score 0, their preemption is left as it is; bind binds them."""

    namespaces: list[Annotated[str, Field(min_length=1)]] = []
    priority_class_names: list[Annotated[str, Field(min_length=1)]] = []


class AlgorithmSourceSection(Section):
    """A file of kube-scheduler that says which algorithms run, in place of ``profiles``; none where both are empty."""

    policy_file: str = ""
    """A Policy, as kube-scheduler read it up to 1.22."""
    scheduler_configuration_file: str = ""
    """A KubeSchedulerConfiguration, v1beta1 to v1."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.policy_file and self.scheduler_configuration_file:
            raise ValueError("policyFile and schedulerConfigurationFile exclude each other: leave one of them empty")
        return self

    @property
    def given(self) -> bool:
        """Whether a file is named."""
        return bool(self.policy_file or self.scheduler_configuration_file)


class ReloadSection(Section):
    """How a changed configuration is taken over while the service runs."""

    poll_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """How often the files are looked at; 0 waits for SIGHUP."""
    sync_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """How long what new algorithms need to have watched may take to be listed."""


def repeated_names(names: list[str]) -> list[tuple[int, int]]:
    """Return the places of names that stand in the list before, each with that of the first."""
    return [(place, names.index(name)) for place, name in enumerate(names) if names.index(name) < place]
