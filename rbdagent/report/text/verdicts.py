"""The verdicts in words."""

from __future__ import annotations

from typing import Final

from rbdagent.model import Verdict

WORDS: Final = {
    Verdict.IN_USE: "a pod uses it",
    Verdict.STAGED: "kubelet or the CSI driver is between two steps",
    Verdict.ORPHANED: "it is mapped, and nothing on that node uses it",
    Verdict.PINNED: "Kubernetes has released it, but something on the node keeps the device open",
    Verdict.DEAD: "the client that maps it can no longer do I/O",
    Verdict.UNWATCHED: "it is mapped read-write without a watch: invisible to Ceph, and live",
    Verdict.SHARED: "several clients hold it, and that is legitimate",
    Verdict.CONFLICT: "it is mapped read-write on two nodes, and nothing makes that legitimate",
    Verdict.FOREIGN: "the client that holds it is not a mapping of a Kubernetes node",
    Verdict.NODE_DOWN: "the node of its holder is not Ready, or does not exist",
    Verdict.RETURNED_DIRTY: "a node that was considered lost is back and still holds it",
    Verdict.UNDETERMINED: "not everything that the answer needs could be observed",
    Verdict.FREE: "every node was observed, and no client holds it",
    Verdict.STALE_ATTACHMENT: "the control plane reports it attached, but its node has no mapping",
    Verdict.NOT_BACKED: "a pod writes to its node's own disk instead of the volume",
}
