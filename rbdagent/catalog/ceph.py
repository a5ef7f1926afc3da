"""RBD3xx: the state of the image in Ceph."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

ENTRIES: Final = (
    Entry(
        "RBD301",
        "ImageGone",
        Severity.ERROR,
        "The image does not exist in the cluster.",
        cause="It was deleted, or the PV names another cluster's image.",
        evidence="The cluster's own answer. Without an answer, this code is not reported.",
        risk="The data is gone unless the image is in the trash. A mapping of a deleted image is "
        "useless.",
        remedy="Check the trash (`rbd trash ls`), mirrors and backups. Unmap the remaining "
        "mappings of the image, once nothing uses them.",
        recovery=Recovery(note="a deleted image does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD302",
        "ImageInTrash",
        Severity.WARNING,
        "The image is in the trash.",
        cause="A user or ceph-csi moved the image to the trash. It stays there until its deferment "
        "ends and it is removed.",
        evidence="The trash of the image's pool.",
        risk="The image is removed permanently when its deferment ends.",
        remedy="Restore it with `rbd trash restore` if it was deleted by mistake.",
        recovery=Recovery(note="the image is removed permanently when its deferment ends"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD303",
        "LegacyKubeletLock",
        Severity.ERROR,
        "An old kubelet's lock is left on the image.",
        cause="A kubelet before 1.10 took a lock `kubelet_lock_magic_<node>` and ended without "
        "releasing it.",
        evidence="The lock's name; its client has no watch.",
        risk="The lock does not block newer kubelets, but old kubelets wait indefinitely.",
        remedy="When the node in the lock's name holds nothing, remove the lock with `rbd lock "
        "rm`.",
        recovery=Recovery(note="the client that took the lock is gone"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD304",
        "LockOfFormerClient",
        Severity.WARNING,
        "A lock belongs to a former client of the same node.",
        cause="The node reconnected as a new client, or maps with two users; the exclusive lock "
        "still names the old one.",
        evidence="The lock holder's IP is this node's. Its nonce matches no mapping here.",
        risk="The new client breaks the lock and blocklists the old client, which is this node's "
        "own former client.",
        remedy="Nothing to do if the old client's mappings are gone. If the old client still has a "
        "mapping, unmap it first.",
        recovery=Recovery(
            actor="the next client that writes", condition="the old client's mapping is gone"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD305",
        "WatchLingers",
        Severity.INFO,
        "A client of this node watches the image, and no mapping here belongs to this client.",
        cause="The client ended, or its image was unmapped, a moment ago: Ceph drops a watch after "
        "30 s.",
        evidence="The watcher's address is this node's; sysfs has no such client.",
        risk="None.",
        remedy="Run rbdagent again in 30 seconds. If the watch still exists, it belongs to a "
        "program that uses librbd.",
        recovery=Recovery(actor="Ceph", within_s=30),
    ),
    Entry(
        "RBD306",
        "NodeOnBlocklist",
        Severity.WARNING,
        "The blocklist has entries for addresses of this volume's nodes.",
        cause="Left over from fencing, or from a lock that was broken.",
        evidence="`ceph osd blocklist ls`, compared with the nodes' addresses.",
        risk="An entry of a client that has nothing mapped does no harm, and expires. A client "
        "that still has a device mapped cannot write until the entry ends. After that it writes "
        "without a watch. An entry of a whole host or of a range (csi-addons' NetworkFence) blocks "
        "every client there, including new clients.",
        remedy="Let the entry of a client that has nothing mapped expire. While a client has a "
        "device mapped, do not remove its entry or let it expire: stop its pods and unmap first. "
        "Remove the entry of a host (`ceph osd blocklist rm IP:0/0`) or of a range (`ceph osd "
        "blocklist range rm CIDR`) only when no node that it covers has a mapping left.",
        recovery=Recovery(
            actor="Ceph",
            condition="the entry expires",
            within_s=3600,
            note="from then on, a client that still has a device mapped writes without a watch",
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD307",
        "AmbiguousImage",
        Severity.ERROR,
        "Several clusters have an image of this name.",
        cause="Equal pool and image names in two clusters, as with mirroring.",
        evidence="Each cluster's own answer.",
        risk="The result may be about the wrong cluster's image.",
        remedy="Name the volume by its device on its node, or observe one cluster at a time.",
        recovery=None,
    ),
    Entry(
        "RBD308",
        "MapRefusedByBlocklist",
        Severity.ERROR,
        "A map failed with 108: the node's shared Ceph client is blocklisted.",
        cause="New mappings share the client of the old, blocklisted mappings. Or the whole host, "
        "or a range with its address, is blocklisted, as by csi-addons' NetworkFence.",
        evidence="The event's text.",
        risk="No new volume starts on that node.",
        remedy="Evict every pod with an RBD volume from the node, so that all its mappings are "
        "removed. The last unmap removes the client, and new maps work. Only then remove an entry "
        "of the host or of a range (`ceph osd blocklist ls` shows it), if that node is to work "
        "again.",
        recovery=Recovery(
            actor="kubelet", condition="the last mapping of that client is gone", within_s=122
        ),
        step=LifecycleStep.STAGE,
    ),
)
