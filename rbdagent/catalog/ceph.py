"""RBD3xx: what Ceph says of the image."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

ENTRIES: Final = (
    Entry(
        "RBD301",
        "ImageGone",
        Severity.ERROR,
        "The image does not exist in the cluster.",
        cause="It was deleted, or the PV names another cluster's image.",
        evidence="The cluster said so; where it could not be asked, this is not said.",
        risk="The data is gone unless it is in the trash. A mapping of a deleted image is dead "
        "weight.",
        remedy="Look into the trash (`rbd trash ls`) and at mirrors and backups. Unmap what still "
        "maps it, once nothing uses it.",
        heals=Heals(note="an image that is gone stays so"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD302",
        "ImageInTrash",
        Severity.WARNING,
        "The image is in the trash.",
        cause="Somebody, or ceph-csi, deleted it; it waits for its deferment or its removal.",
        evidence="The trash of its pool.",
        risk="It is removed for good when its time is over.",
        remedy="Restore it with `rbd trash restore` if it was deleted by mistake.",
        heals=Heals(note="it is removed for good when its time is over"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD303",
        "LegacyKubeletLock",
        Severity.ERROR,
        "An old kubelet's lock is left on the image.",
        cause="Kubelets before 1.10 took a lock `kubelet_lock_magic_<node>` and died with it.",
        evidence="The lock's name; its client has no watch.",
        risk="It refuses nothing by itself to newer kubelets, but old ones wait for ever.",
        remedy="When the node it names holds nothing, remove the lock with `rbd lock rm`.",
        heals=Heals(note="whoever took the lock is gone"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD304",
        "LockOfFormerClient",
        Severity.WARNING,
        "A lock belongs to a former client of the same node.",
        cause="The node reconnected as a new client, or maps with two users; the exclusive lock "
        "still names the old one.",
        evidence="The locker's IP is this node's, its nonce is no mapping's.",
        risk="The new client breaks the lock and blocklists the old one, that is: itself, before.",
        remedy="Nothing, if its mappings are gone. If an old mapping of that client lives, unmap "
        "it first.",
        heals=Heals(by="the next client that writes", once="its old mapping is gone"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD305",
        "WatchLingers",
        Severity.INFO,
        "A watch of this node is there, and no mapping here is its client.",
        cause="The client died or was unmapped a moment ago: Ceph drops a watch after 30 s.",
        evidence="The watcher's address is this node's; sysfs has no such client.",
        risk="None.",
        remedy="Look again in 30 seconds. If it is still there, it is a program that uses librbd.",
        heals=Heals(by="Ceph", within_s=30),
    ),
    Entry(
        "RBD306",
        "NodeOnBlocklist",
        Severity.WARNING,
        "The blocklist has entries for addresses of this volume's nodes.",
        cause="Left over from fencing, or from a lock that was broken.",
        evidence="`ceph osd blocklist ls` against the nodes' addresses.",
        risk="An entry of a client that has nothing mapped does no harm, and expires. A client "
        "that still has a device mapped cannot write until the entry ends; from then on it writes "
        "without a watch. An entry of a whole host or of a range (csi-addons' NetworkFence) stops "
        "every client there, new ones too.",
        remedy="Let the entry of a client that has nothing mapped expire. While a client has a "
        "device mapped, neither lift its entry nor let it end: stop its pods and unmap first. "
        "Remove the entry of a host (`ceph osd blocklist rm IP:0/0`) or of a range (`ceph osd "
        "blocklist range rm CIDR`) only when no node that it covers has a mapping left.",
        heals=Heals(
            by="Ceph",
            once="the entry expires",
            within_s=3600,
            note="a client that still has a device mapped writes without a watch then",
        ),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD307",
        "AmbiguousImage",
        Severity.ERROR,
        "Several clusters have an image of this name.",
        cause="Equal pool and image names in two clusters, as with mirroring.",
        evidence="Each cluster's own answer.",
        risk="An answer about the wrong cluster's image.",
        remedy="Name the volume by its device on its node, or look at one cluster at a time.",
        heals=None,
    ),
    Entry(
        "RBD308",
        "MapRefusedByBlocklist",
        Severity.ERROR,
        "A map failed with 108: the node's shared Ceph client is blocklisted.",
        cause="New mappings share the client of the old, blocklisted ones. Or the whole host or a "
        "range with its address is blocklisted, as by csi-addons' NetworkFence.",
        evidence="The event's text.",
        risk="No new volume starts on that node.",
        remedy="Evict every pod with an RBD volume from the node, so that all its mappings go. "
        "With the last one the client goes, and new maps work. Only then remove an entry of the "
        "host or of a range (`ceph osd blocklist ls` shows it), if that node is to work again.",
        heals=Heals(by="kubelet", once="the last mapping of that client is gone", within_s=122),
        step=LifeStep.STAGE,
    ),
)
