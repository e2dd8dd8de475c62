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
from extender.framework.argument import API_OBJECT
from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.framework.namespace import NamespaceLabels
from extender.framework.owner_selector import OwnerSelectors
from extender.framework.pod_class import PodClasses
from extender.framework.resource import RequestedResources, Share
from extender.framework.selection import decide_taints, select_rows, select_rows_of_term, select_untolerated_rows
from extender.framework.service_spread import count_service_pods, score_spread
from extender.framework.utilization import UtilizationShape, WeightedMean, measure_percents
from extender.model.affinity import AffinityTerm, AffinityTerms, compile_affinity
from extender.model.bag import RowBag
from extender.model.column import BoolArray, IntArray, Interned, LabelColumn, lengthen
from extender.model.kind import NODES, PODS, Kind
from extender.model.name import is_qualified_name
from extender.model.node import NodeInfo
from extender.model.object import Labels, NodeAffinity, NodeSelectorTerm, Taint, TopologySpreadConstraint
from extender.model.pod import PendingPod, PodInfo, PodShape
from extender.model.port import WILDCARD_IP, HostPort
from extender.model.request import is_extended_resource
from extender.model.selector import (
    NAME_FIELD,
    LabelMatcher,
    NodeMatcher,
    Operator,
    WeightedNodeTerm,
    compile_node_selector,
    compile_preferred_terms,
)
from extender.model.spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SpreadConstraint, compile_spread_constraints
from extender.model.table import NodeTable
from extender.model.toleration import NO_EXECUTE, NO_SCHEDULE, count_intolerable_prefer_no_schedule, tolerates

__all__ = [
    "API_OBJECT",
    "DO_NOT_SCHEDULE",
    "MAX_NODE_SCORE",
    "NAME_FIELD",
    "NODES",
    "NO_EXECUTE",
    "NO_SCHEDULE",
    "PODS",
    "SCHEDULE_ANYWAY",
    "SKIP",
    "WILDCARD_IP",
    "AffinityTerm",
    "AffinityTerms",
    "Args",
    "BoolArray",
    "Cache",
    "Field",
    "HostPort",
    "IntArray",
    "Interned",
    "Kind",
    "LabelColumn",
    "LabelMatcher",
    "Labels",
    "NamespaceLabels",
    "NodeAffinity",
    "NodeInfo",
    "NodeMatcher",
    "NodePredicate",
    "NodePriority",
    "NodeSelectorTerm",
    "NodeTable",
    "Nodes",
    "Operator",
    "OwnerSelectors",
    "PendingPod",
    "PodClasses",
    "PodInfo",
    "PodShape",
    "Predicate",
    "Priority",
    "QuantityError",
    "Refusal",
    "RequestedResources",
    "RowBag",
    "SelectorError",
    "Share",
    "Skip",
    "SpreadConstraint",
    "Taint",
    "TopologySpreadConstraint",
    "UtilizationShape",
    "WeightedMean",
    "WeightedNodeTerm",
    "compile_affinity",
    "compile_node_selector",
    "compile_preferred_terms",
    "compile_spread_constraints",
    "count_intolerable_prefer_no_schedule",
    "count_service_pods",
    "decide_taints",
    "field_validator",
    "is_extended_resource",
    "is_qualified_name",
    "lengthen",
    "measure_percents",
    "model_validator",
    "normalize_to_best",
    "score_spread",
    "select_rows",
    "select_rows_of_term",
    "select_untolerated_rows",
    "tolerates",
    "uses",
]
