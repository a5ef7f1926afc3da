"""RBD9xx: sources and facts that were not observed."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Severity

ENTRIES: Final = (
    Entry(
        "RBD901",
        "NodeNotObserved",
        Severity.WARNING,
        "This node was not observed.",
        cause="A missing permission, a missing mount of the host's /sys or /proc, or a flag.",
        evidence="The source's own reason.",
        risk="Mappings here are not known; no volume is reported as free.",
        remedy="Run as root on the node, or see `rbdagent check`.",
        recovery=None,
    ),
    Entry(
        "RBD902",
        "CephNotObserved",
        Severity.WARNING,
        "Ceph could not be queried.",
        cause="No route to the monitors, a wrong key, or insufficient caps.",
        evidence="The source's own reason.",
        risk="Holders on other nodes are not known; no volume is reported as free or orphaned.",
        remedy="See `rbdagent check`.",
        recovery=None,
    ),
    Entry(
        "RBD903",
        "KubernetesNotObserved",
        Severity.WARNING,
        "The Kubernetes API could not be queried.",
        cause="No kubeconfig, an expired token, missing permissions, or the server is down.",
        evidence="The source's own reason.",
        risk="Pods and attachments are not known; no volume is reported as free or orphaned.",
        remedy="See `rbdagent check`.",
        recovery=None,
    ),
    Entry(
        "RBD904",
        "FactNotObserved",
        Severity.WARNING,
        "A source was observed only in part.",
        cause="A capability, a cap or a permission is missing.",
        evidence="The fact, the reason, and how to make the fact observable.",
        risk="A result that needs this fact is reported as undetermined.",
        remedy="Grant the permission or the cap that the finding names.",
        recovery=None,
    ),
    Entry(
        "RBD905",
        "CephDidNotAnswer",
        Severity.WARNING,
        "Ceph did not answer in time about this volume's image.",
        cause="The monitors have no quorum or cannot be reached from here, or the image's "
        "placement group is inactive or its OSD hangs.",
        evidence="The query that had no answer, and how long rbdagent waited.",
        risk="Holders of the image on other nodes were not observed: do not treat the image as "
        "free. If Ceph does not answer its other clients either, reads, writes, map and unmap hang "
        "too.",
        remedy="`ceph -s` and `ceph health detail` show monitors, OSDs and placement groups that "
        "are down. Run rbdagent again when Ceph answers. Until then, do not detach by force and "
        "do not start the pod elsewhere.",
        recovery=None,
    ),
)
