"""`Free` is never the answer if the image of a volume was renamed while a pod uses it.

``rbd rename`` works while the image is mapped. Then another image gets the name, as after a
restore. The PV, ceph-csi's journal and sysfs keep the name, so they lead to the other image. The
device of the pod is still of the renamed one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct

from tests.lab.processes import wait_until
from tests.lab.workloads import RETRIED_S, collection
from tests.support.run_summary import PRINTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.scene import Report, Scene

_HERE: Final = "worker-1"
_ELSEWHERE: Final = "worker-2"
_ATTACHMENTS: Final = collection("VolumeAttachment")


class Replaced(Struct, frozen=True):
    """A volume whose image was renamed, and replaced by an empty one."""

    volume: str
    pod: str
    image: str
    """POOL/NAME, as in the PV."""

    @property
    def renamed(self) -> str:
        """The present name of the image that the pod uses."""
        return f"{self.image}-renamed"


def started(scene: Scene, suffix: str, *, block: bool) -> Replaced:
    """Return a volume with a running pod, before its image is renamed."""
    volume = scene.claim(suffix, volume_mode="Block" if block else "Filesystem")
    pod = scene.run_pod(_HERE, suffix, claim_suffix=suffix, block=block)
    return Replaced(volume, pod, scene.image_of(volume))


def replace(scene: Scene, given: Replaced) -> None:
    """Rename the image of a volume, and create another one with its name."""
    ceph = scene.lab.ceph
    ceph.rbd("rename", given.image, given.renamed)
    ceph.create_image(given.image)


def put_back(scene: Scene, given: Replaced) -> None:
    """Rename the image back, as the remedy of RBD123 does; a second call does nothing."""
    ceph = scene.lab.ceph
    pool, _, name = given.renamed.partition("/")
    if name in ceph.rbd("ls", pool).split():
        ceph.rbd("rename", given.image, f"{given.image}.other")
        ceph.rbd("rename", given.renamed, given.image)
        ceph.rbd("rm", "--no-progress", f"{given.image}.other")


def detach(scene: Scene, volume: str) -> None:
    """Delete the VolumeAttachments of a volume, and wait until they are gone."""
    for attachment in scene.workloads.attachments(volume):
        scene.lab.control_plane.api.delete(f"{_ATTACHMENTS}/{attachment['metadata']['name']}")
    wait_until(
        lambda: not scene.workloads.attachments(volume),
        timeout_s=RETRIED_S,
        what=f"the attachments of {volume} to be gone",
    )


def message_of(report: Report) -> str:
    return str(report.finding("RBD123")["message"])


def assert_names_both(report: Report, given: Replaced) -> None:
    """Assert that an answer names the image in use, and that the name in the PV leads elsewhere."""
    message = message_of(report)
    assert f"image {given.renamed} (id " in message, report
    assert f"{given.image}, which is another image now" in message, report
    assert report.finding("RBD123")["severity"] == "critical"
    held = report.holder(_HERE)["otherImage"]
    assert held["id"] != report.data["image"]["id"], report
    assert any(command.endswith(f"rbd info {given.renamed}") for command in report.next)
    assert not any("unmap" in command for command in report.next)


def is_reported_from_afar(scene: Scene) -> bool:
    """Return whether ``diagnose -A`` has the code on a machine that is not a node."""
    done = scene.lab.rbdagent_from_afar("diagnose", "-A", "-o", "json")
    assert done.stdout, done
    return '"RBD123"' in done.stdout


def _is_known_elsewhere(scene: Scene, given: Replaced) -> bool:
    return "RBD123" in scene.look(_ELSEWHERE, given.volume).codes


@pytest.mark.alone
def test_volume_whose_image_was_renamed_is_never_free(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    """A file system and a raw block device, on the node itself and from another node."""
    volumes = (
        started(scene, "-files", block=False),
        started(scene, "-block", block=True),
    )
    for given in volumes:
        scene.undo(partial(put_back, scene, given))
        replace(scene, given)

    for given in volumes:
        running = scene.look(_HERE, given.volume)
        assert running.verdict == "InUse", running
        assert_names_both(running, given)
        assert "RBD416" not in running.codes
        by_image = scene.look(_HERE, given.image)
        assert by_image.verdict != "Free", by_image

    kubelet = scene.lab.nodes[_HERE].service("kubelet")
    with scene.agent(_HERE):
        for given in volumes:
            wait_until(
                partial(_is_known_elsewhere, scene, given),
                timeout_s=120,
                what=f"{_ELSEWHERE} to know the device of {given.volume}",
                interval_s=3,
            )
            assert_names_both(scene.look(_ELSEWHERE, given.volume), given)
        assert is_reported_from_afar(scene)

        kubelet.stop()
        scene.undo(kubelet.restart)
        for given in volumes:
            scene.workloads.force_delete(given.pod)
            scene.workloads.wait_gone("Pod", given.pod)
            detach(scene, given.volume)
        for given in volumes:
            for node in (_HERE, _ELSEWHERE):
                lost = scene.look(node, given.volume)
                record_property(PRINTED, f"{given.volume} on {node}: {lost.summary}")
                assert lost.verdict != "Free", lost
                assert "RBD123" in lost.codes, lost
            refused = scene.refused(_HERE, given.volume)
            assert "name /dev/rbd" in refused["RBD501"], refused

    for given in volumes:
        put_back(scene, given)
        healed = scene.look(_HERE, given.volume)
        assert "RBD123" not in healed.codes, healed
        assert healed.verdict == "InUse", healed
