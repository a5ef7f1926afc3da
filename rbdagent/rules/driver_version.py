"""The version of ceph-csi that the pods of a driver run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import observed_of
from rbdagent.parse.driver_image import cephcsi_version

if TYPE_CHECKING:
    from rbdagent.rules.context import RuleContext


def driver_version(case: RuleContext, driver: str) -> str:
    """Return the version of ceph-csi that all observed pods of a driver run; "" if unknown."""
    kube = case.snapshot.kubernetes
    images = [
        image
        for pod in (() if kube is None else observed_of(kube.driver_pods))
        if driver in pod.serves
        for image in pod.images
    ]
    found = {version for image in images if (version := cephcsi_version(image))}
    return found.pop() if len(found) == 1 else ""
