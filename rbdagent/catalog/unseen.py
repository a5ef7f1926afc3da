"""RBD9xx: what nobody could look at."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Severity

ENTRIES: Final = (
    Entry(
        "RBD901",
        "NodeNotObserved",
        Severity.WARNING,
        "This node was not looked at.",
        cause="A missing right, a missing mount of the host's /sys or /proc, or a flag.",
        evidence="The source's own reason.",
        risk="Mappings here would not be seen; nothing is called free.",
        remedy="Run as root on the node, or see `rbdagent check`.",
        heals=None,
    ),
    Entry(
        "RBD902",
        "CephNotObserved",
        Severity.WARNING,
        "Ceph could not be asked.",
        cause="No route to the monitors, a wrong key, or caps that are too small.",
        evidence="The source's own reason.",
        risk="Holders on other nodes are not seen; nothing is called free or orphaned.",
        remedy="See `rbdagent check`.",
        heals=None,
    ),
    Entry(
        "RBD903",
        "KubernetesNotObserved",
        Severity.WARNING,
        "The Kubernetes API could not be asked.",
        cause="No kubeconfig, an expired token, missing permissions, or the server is down.",
        evidence="The source's own reason.",
        risk="Pods and attachments are not seen; nothing is called free or orphaned.",
        remedy="See `rbdagent check`.",
        heals=None,
    ),
    Entry(
        "RBD904",
        "FactNotObserved",
        Severity.WARNING,
        "A source was observed, but not all of it.",
        cause="A capability, a cap or a permission is missing.",
        evidence="Which fact, why, and what would cure it.",
        risk="What rests on that fact is called undetermined.",
        remedy="Grant what the finding names.",
        heals=None,
    ),
    Entry(
        "RBD905",
        "CephDidNotAnswer",
        Severity.WARNING,
        "Ceph did not answer in time about this volume's image.",
        cause="The monitors have no quorum or cannot be reached from here, or the image's "
        "placement group is inactive or its OSD hangs.",
        evidence="Which question had no answer, and for how long rbdagent waited.",
        risk="Who holds the image on other nodes was not observed: it must not be taken for free. "
        "Where Ceph answers its other clients no better, reads, writes, map and unmap hang too.",
        remedy="`ceph -s` and `ceph health detail` show monitors, OSDs and placement groups that "
        "are down. Run rbdagent again when Ceph answers. Until then do not detach by force, and "
        "do not start the pod elsewhere.",
        heals=None,
    ),
)
