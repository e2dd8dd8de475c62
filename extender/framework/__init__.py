"""The author API: everything an algorithm may import, and nothing else of the service.

An algorithm is one file with one class. It subclasses ``Predicate`` or ``Priority`` (or both) and answers for all
candidates at once, or ``NodePredicate`` or ``NodePriority`` and answers for one node at a time.
"""

from pydantic import Field, field_validator, model_validator

from extender.errors import QuantityError, SelectorError
from extender.framework.algorithm import (
    MAX_NODE_SCORE,
    SKIP,
    Args,
    NodePredicate,
    NodePriority,
    Predicate,
    Priority,
    Refusal,
    Skip,
    normalize_to_best,
    uses,
)
from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.framework.resource import RequestedResources, Share
from extender.model.column import BoolArray, IntArray, lengthen
from extender.model.kind import NODES, PODS, Kind
from extender.model.name import is_qualified_name
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod, PodInfo
from extender.model.request import is_extended_resource
from extender.model.table import NodeTable

__all__ = [
    "MAX_NODE_SCORE",
    "NODES",
    "PODS",
    "SKIP",
    "Args",
    "BoolArray",
    "Cache",
    "Field",
    "IntArray",
    "Kind",
    "NodeInfo",
    "NodePredicate",
    "NodePriority",
    "NodeTable",
    "Nodes",
    "PendingPod",
    "PodInfo",
    "Predicate",
    "Priority",
    "QuantityError",
    "Refusal",
    "RequestedResources",
    "SelectorError",
    "Share",
    "Skip",
    "field_validator",
    "is_extended_resource",
    "is_qualified_name",
    "lengthen",
    "model_validator",
    "normalize_to_best",
    "uses",
]
