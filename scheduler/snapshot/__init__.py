"""The cluster as columns.

Each quantity is one contiguous array of length n_nodes. Row i is the same node in all arrays of one snapshot, but not
in other snapshots. `scheduler.engine.state` writes the `ClusterTable`; all other code reads a `Snapshot`.
"""

from scheduler.snapshot.affinity_index import (
    MOST_COST_AT_ONCE,
    MOST_TERMS_AT_ONCE,
    TermKind,
    TermsInUse,
    TermsThatMean,
)
from scheduler.snapshot.arrays import (
    Bools,
    ChangeLog,
    Float64s,
    Int32s,
    Int64s,
    Rows,
    UInt16s,
    put_where,
    selected,
    shared,
    wrapped,
)
from scheduler.snapshot.images import ImageState
from scheduler.snapshot.interning import Interned
from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
from scheduler.snapshot.nominated_pods import NominatedOthers, NominatedPods
from scheduler.snapshot.object_store import Index, Objects, ObjectStore, object_key, resource_version
from scheduler.snapshot.pod_counts import PodQuery, PodsIn
from scheduler.snapshot.pod_tally import NamespaceLabels, TalliedTerm, Tally, TallyTerms
from scheduler.snapshot.selection import (
    nodes_of,
    nodes_of_any,
    nodes_required,
    nodes_with_labels,
    weigh_nodes,
)
from scheduler.snapshot.snapshot import NodeInfo, ResourceArrays, Snapshot
from scheduler.snapshot.storage_index import StorageIndex, StorageInUse
from scheduler.snapshot.table import ClusterTable
from scheduler.snapshot.term_columns import Conditions, conditions

__all__ = [
    "MOST_COST_AT_ONCE",
    "MOST_TERMS_AT_ONCE",
    "Bools",
    "ChangeLog",
    "ClusterTable",
    "Conditions",
    "Float64s",
    "ImageState",
    "Index",
    "Int32s",
    "Int64s",
    "Interned",
    "NamespaceLabels",
    "NodeInfo",
    "NodeTally",
    "NominatedOthers",
    "NominatedPods",
    "ObjectStore",
    "Objects",
    "PodQuery",
    "PodsIn",
    "ResourceArrays",
    "Rows",
    "Snapshot",
    "StorageInUse",
    "StorageIndex",
    "TalliedTerm",
    "Tally",
    "TallyTerms",
    "TermKind",
    "TermsInUse",
    "TermsThatMean",
    "UInt16s",
    "WeighedTerms",
    "conditions",
    "nodes_of",
    "nodes_of_any",
    "nodes_required",
    "nodes_with_labels",
    "object_key",
    "put_where",
    "resource_version",
    "selected",
    "shared",
    "weigh_nodes",
    "wrapped",
]
