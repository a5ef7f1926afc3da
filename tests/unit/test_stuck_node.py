"""A node whose kubelet or CSI driver is down: a volume in use on it is not stuck."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.lifecycle.cluster_report import is_complete, report_cluster
from rbdagent.model import PluginSocket, Severity, Snapshot, TargetKind
from rbdagent.report.text.cluster import affected_table
from rbdagent.report.text.layout import Layout
from tests.support.snapshots import (
    DRIVER,
    LONG_AGO,
    attachment,
    found,
    mount,
    pod,
    target,
    world,
)

EVERYTHING: Final = target(argument="-A", kind=TargetKind.NONE, name="")
NO_KUBELET: Final = {"process": None}
NO_DRIVER: Final = {"sockets": (PluginSocket(driver=DRIVER, path="/s", listening=False),)}
DOWN: Final = [(NO_KUBELET, "RBD202"), (NO_DRIVER, "RBD201")]
IDS: Final = ["kubelet", "driver"]


def all_on_worker_1(of_kubelet: dict[str, Any], **of_pod: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return world(
        target=EVERYTHING,
        mapped={"mounts": (mount(),)},
        of_kubelet=of_kubelet,
        in_kube={"pods": (pod(**of_pod),), "attachments": (attachment(),)},
    )


@pytest.mark.parametrize(("of_kubelet", "code"), DOWN, ids=IDS)
def test_volume_in_use_is_not_stuck_and_the_node_has_a_warning(
    of_kubelet: dict[str, Any], code: str
) -> None:
    seen = all_on_worker_1(of_kubelet)
    stuck = report_cluster(seen)
    assert stuck.causes == ()
    assert [(finding.code, finding.severity) for finding in stuck.findings] == [
        (code, Severity.WARNING)
    ]
    assert is_complete(stuck)
    text = affected_table(stuck, seen, layout=Layout())
    assert "is stuck" in text.splitlines()[0]
    assert code in text


@pytest.mark.parametrize(("of_kubelet", "code"), DOWN, ids=IDS)
def test_volume_whose_pod_cannot_end_is_stuck(of_kubelet: dict[str, Any], code: str) -> None:
    stuck = report_cluster(all_on_worker_1(of_kubelet, deleting_since=LONG_AGO))
    assert [cause.finding.code for cause in stuck.causes] == [code]
    assert stuck.findings == ()


@pytest.mark.parametrize(
    ("of_pod", "severity"),
    [({}, Severity.WARNING), ({"deleting_since": LONG_AGO}, Severity.ERROR)],
    ids=["runs", "ends"],
)
def test_kubelet_that_is_down_is_an_error_if_a_pod_waits(
    of_pod: dict[str, Any], severity: Severity
) -> None:
    seen = world(
        mapped={"mounts": (mount(),)},
        of_kubelet=NO_KUBELET,
        in_kube={"pods": (pod(**of_pod),), "attachments": (attachment(),)},
    )
    assert found(seen, "RBD202").severity is severity
