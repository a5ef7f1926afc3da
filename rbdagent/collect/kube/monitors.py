"""The lists of Ceph monitors that CSI drivers keep in ConfigMaps, each requested by name."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.commands import kubectl, line_of
from rbdagent.errors import SourceError
from rbdagent.model import NotObserved
from rbdagent.parse.monitors import parse_monitor_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.kube.client import PendingRequest
    from rbdagent.collect.kube.kubeconfig import KubeAccess, MonitorList


def read_monitor_lists(
    lists: Sequence[MonitorList],
) -> dict[str, tuple[str, ...] | NotObserved]:
    """Return the monitors of each cluster by its name; the requests are sent together."""
    accesses = {listed.access for listed in lists}
    found: dict[str, tuple[str, ...] | NotObserved] = {}
    for access in accesses:
        of_access = [listed for listed in lists if listed.access == access]
        found |= _unqueried(of_access) if access is None else _read(access, of_access)
    return found


def _unqueried(lists: Sequence[MonitorList]) -> dict[str, NotObserved]:
    return {
        listed.cluster: NotObserved(
            reason=f"the monitors of {listed.cluster} are in {listed}, and the Kubernetes API is "
            "not queried, as requested",
            hint="do not use --no-kube, or name the monitors in a ceph.conf",
        )
        for listed in lists
    }


def _read(
    access: KubeAccess, lists: Sequence[MonitorList]
) -> dict[str, tuple[str, ...] | NotObserved]:
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
    except Exception as error:  # noqa: BLE001 - the clusters without a list must still be queried
        return {listed.cluster: not_observed(error, str(listed)) for listed in lists}
    asked = [(listed, api.ask(_path(listed))) for listed in lists]
    return {listed.cluster: _answer(listed, pending) for listed, pending in asked}


def _path(listed: MonitorList) -> str:
    return f"/api/v1/namespaces/{segment(listed.namespace)}/configmaps/{segment(listed.config_map)}"


def _answer(listed: MonitorList, asked: PendingRequest) -> tuple[str, ...] | NotObserved:
    where = str(listed)
    try:
        text = _text(asked.answer(), listed)
        return parse_monitor_list(text, cluster_id=listed.cluster_id, where=where)
    except StatusError as error:
        return NotObserved(reason=f"{where}: {error}", hint=_hint(listed, error))
    except Exception as error:  # noqa: BLE001 - a failed request must not hide the others
        return not_observed(error, where)


def _text(config_map: dict[str, object], listed: MonitorList) -> str:
    data = config_map.get("data")
    text = data.get(listed.key) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise SourceError(f"{listed}: there is no such key", hint="correct monitors-key")
    return text


def _hint(listed: MonitorList, error: StatusError) -> str:
    if error.status != HTTPStatus.FORBIDDEN:
        return error.hint or "correct monitors-from"
    asked = kubectl("auth can-i get", f"configmaps/{listed.config_map}", namespace=listed.namespace)
    return f"{line_of(asked)} shows whether the permission is granted; the chart's Role grants it"
