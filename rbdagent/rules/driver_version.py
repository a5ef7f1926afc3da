"""The version of ceph-csi that the pods of a driver run."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from rbdagent.model import observed_of
from rbdagent.parse.driver_image import cephcsi_version
from rbdagent.verdicts.volume_verdict import driver_of

if TYPE_CHECKING:
    from rbdagent.rules.context import RuleContext


def driver_version(context: RuleContext, driver: str) -> str:
    """Return the version of ceph-csi that all observed pods of a driver run; "" if unknown."""
    kube = context.snapshot.kubernetes
    images = [
        image
        for pod in (() if kube is None else observed_of(kube.driver_pods))
        if driver in pod.serves
        for image in pod.images
    ]
    found = {version for image in images if (version := cephcsi_version(image))}
    return found.pop() if len(found) == 1 else ""


# --------------------------------------------------------------------------------------------------
# Secure global_id reclaim
# --------------------------------------------------------------------------------------------------

_PATCHED: Final = (3, 3, 1)
_ALSO_PATCHED: Final = (3, 2, 2)
"""The images of ceph-csi 3.3.0 have the client of Ceph 15.2.10, and those of 3.3.1 the client of
15.2.11, which reclaims its global_id securely (ceph-csi#1995; doc/security/CVE-2021-20288.rst of
Ceph). 3.2.2 was built for that (commit d719986cacc5)."""


def is_client_too_old(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether monitors may refuse the client of the driver's version, with error 13.

    They do if auth_allow_insecure_global_id_reclaim is false. The client in the kernel is not
    affected.
    """
    version = _numbers_of(context, named)
    is_patched = version >= _PATCHED or version == _ALSO_PATCHED
    return _is_refused(named) and version != () and not is_patched


def may_be_too_old(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the version was not observed that decides about such an error."""
    return _is_refused(named) and _numbers_of(context, named) == ()


def _is_refused(named: dict[str, str]) -> bool:
    return named.get("number") == str(errno.EACCES)


def _numbers_of(context: RuleContext, named: dict[str, str]) -> tuple[int, ...]:
    """Return the version of the driver that a text is about; empty if it is not known."""
    version = driver_version(context, named.get("driver") or driver_of(context.volume) or "")
    return tuple(map(int, version.split("."))) if version else ()
