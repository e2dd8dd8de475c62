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
    Reserver,
    Skip,
    normalize_to_best,
    uses,
)
from extender.framework.argument import API_OBJECT
from extender.framework.argument_type import AnnotationKey, LabelKey, NonEmpty, ResourceName
from extender.framework.attached_volume import AttachedVolume, Fault, describe_foreign_claim
from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.framework.csi_node import NO_LIMIT, CsiNodes
from extender.framework.csi_volume import CsiVolumes
from extender.framework.device import DeviceAsk, DeviceRequest, Grant, UnservableRequest
from extender.framework.device_convention import CONVENTIONS
from extender.framework.device_kind import DeviceKind
from extender.framework.device_packing import DevicePacking
from extender.framework.device_pool import DevicePool
from extender.framework.device_table import DeviceSource, DeviceTables, check_kinds
from extender.framework.device_text import UNREADABLE
from extender.framework.eviction import EvictedPods
from extender.framework.free_volume import FreeVolumes, VolumeChoice
from extender.framework.in_tree_limit import InTreeLimits
from extender.framework.namespace import NamespaceLabels
from extender.framework.owned_pod import DesiredReplicas, OwnedPods
from extender.framework.owner_selector import OwnerSelectors
from extender.framework.placed_term import Carried, PlacedTerms, TermIndex
from extender.framework.pod_address import (
    ADDRESS_COUNT,
    MOST_ADDRESSES,
    UNLIMITED,
    AddressCapacity,
    PodAddresses,
    read_address_count,
)
from extender.framework.pod_class import PodClasses, Selection
from extender.framework.provider import Provider
from extender.framework.reach import compile_topologies, select_rows_of_terms
from extender.framework.resource import RequestedResources, Share
from extender.framework.selection import decide_taints, select_rows, select_rows_of_term, select_untolerated_rows
from extender.framework.service_spread import count_service_pods, score_spread
from extender.framework.storage_capacity import StorageCapacities
from extender.framework.storage_use import StorageUse
from extender.framework.utilization import (
    Rating,
    ScoredResources,
    ShapePoint,
    UtilizationShape,
    WeightedMean,
    check_points,
    rate_free,
    rate_used,
    weigh,
)
from extender.framework.volume import StorageObjects
from extender.model.affinity import AffinityTerm, AffinityTerms, compile_affinity
from extender.model.bag import RowBag
from extender.model.claim import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimUse,
    claim_key,
    claim_volume_name,
    is_claim_bound,
    is_controlled_by,
    requested_bytes,
    selected_node,
    storage_class_name,
)
from extender.model.column import BoolArray, IntArray, Interned, LabelColumn, lengthen
from extender.model.kind import NODES, PODS, Kind
from extender.model.migration import (
    AWS_EBS,
    AZURE_DISK,
    BETA_REGION,
    BETA_ZONE,
    GCE_PD,
    REGION,
    ZONE,
    ZONE_DELIMITER,
)
from extender.model.name import is_qualified_name
from extender.model.node import NodeInfo
from extender.model.object import (
    KubernetesObject,
    Labels,
    LabelSelector,
    NodeAffinity,
    NodeSelectorTerm,
    ObjectMeta,
    Taint,
    TopologySpreadConstraint,
    Volume,
)
from extender.model.pod import PendingPod, PodInfo, PodShape
from extender.model.port import WILDCARD_IP, HostPort
from extender.model.request import is_extended_resource
from extender.model.selector import (
    NAME_FIELD,
    LabelMatcher,
    NodeMatcher,
    Operator,
    Requirement,
    WeightedNodeTerm,
    compile_label_selector,
    compile_node_selector,
    compile_preferred_terms,
)
from extender.model.spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SpreadConstraint, compile_spread_constraints
from extender.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from extender.model.table import NodeTable
from extender.model.toleration import NO_EXECUTE, NO_SCHEDULE, count_intolerable_prefer_no_schedule, tolerates

__all__ = [
    "ADDRESS_COUNT",
    "API_OBJECT",
    "AWS_EBS",
    "AZURE_DISK",
    "BETA_REGION",
    "BETA_ZONE",
    "CONVENTIONS",
    "DO_NOT_SCHEDULE",
    "GCE_PD",
    "MAX_NODE_SCORE",
    "MOST_ADDRESSES",
    "NAME_FIELD",
    "NODES",
    "NO_EXECUTE",
    "NO_LIMIT",
    "NO_PROVISIONER",
    "NO_SCHEDULE",
    "PODS",
    "READ_WRITE_ONCE_POD",
    "REGION",
    "SCHEDULE_ANYWAY",
    "SKIP",
    "UNLIMITED",
    "UNREADABLE",
    "WAIT_FOR_FIRST_CONSUMER",
    "WILDCARD_IP",
    "ZONE",
    "ZONE_DELIMITER",
    "AddressCapacity",
    "AffinityTerm",
    "AffinityTerms",
    "AnnotationKey",
    "Args",
    "AttachedVolume",
    "BoolArray",
    "Cache",
    "Carried",
    "ClaimUse",
    "CsiNodes",
    "CsiVolumes",
    "DesiredReplicas",
    "DeviceAsk",
    "DeviceKind",
    "DevicePacking",
    "DevicePool",
    "DeviceRequest",
    "DeviceSource",
    "DeviceTables",
    "EvictedPods",
    "Fault",
    "Field",
    "FreeVolumes",
    "Grant",
    "HostPort",
    "InTreeLimits",
    "IntArray",
    "Interned",
    "Kind",
    "KubernetesObject",
    "LabelColumn",
    "LabelKey",
    "LabelMatcher",
    "LabelSelector",
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
    "NonEmpty",
    "ObjectMeta",
    "Operator",
    "OwnedPods",
    "OwnerSelectors",
    "PendingPod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PlacedTerms",
    "PodAddresses",
    "PodClasses",
    "PodInfo",
    "PodShape",
    "Predicate",
    "Priority",
    "Provider",
    "QuantityError",
    "Rating",
    "Refusal",
    "RequestedResources",
    "Requirement",
    "Reserver",
    "ResourceName",
    "RowBag",
    "ScoredResources",
    "Selection",
    "SelectorError",
    "ShapePoint",
    "Share",
    "Skip",
    "SpreadConstraint",
    "StorageCapacities",
    "StorageClass",
    "StorageObjects",
    "StorageUse",
    "Taint",
    "TermIndex",
    "TopologySpreadConstraint",
    "UnservableRequest",
    "UtilizationShape",
    "Volume",
    "VolumeChoice",
    "WeightedMean",
    "WeightedNodeTerm",
    "check_kinds",
    "check_points",
    "claim_key",
    "claim_volume_name",
    "compile_affinity",
    "compile_label_selector",
    "compile_node_selector",
    "compile_preferred_terms",
    "compile_spread_constraints",
    "compile_topologies",
    "count_intolerable_prefer_no_schedule",
    "count_service_pods",
    "decide_taints",
    "describe_foreign_claim",
    "field_validator",
    "is_claim_bound",
    "is_controlled_by",
    "is_extended_resource",
    "is_qualified_name",
    "lengthen",
    "model_validator",
    "normalize_to_best",
    "rate_free",
    "rate_used",
    "read_address_count",
    "requested_bytes",
    "score_spread",
    "select_rows",
    "select_rows_of_term",
    "select_rows_of_terms",
    "select_untolerated_rows",
    "selected_node",
    "storage_class_name",
    "tolerates",
    "uses",
    "weigh",
]
