"""A file that a pod writes into its volume, and that another node reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.e2e.scene import Scene


WORDS: Final = "written on worker-1"


def write(scene: Scene, pod: str, volume: str) -> None:
    """Write a file into a volume, as its pod would."""
    path = f"{scene.mount_of(pod, volume)}/file"
    scene.lab.nodes["worker-1"].run(f"echo {WORDS} >{path}; sync -f {path}")


def read_back(scene: Scene, pod: str, volume: str) -> str:
    """Return the file, read on the other node."""
    path = f"{scene.mount_of(pod, volume)}/file"
    return scene.lab.nodes["worker-2"].get(path).decode().strip()
