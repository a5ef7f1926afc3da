"""What several processes share is read once, and counts for each of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node import kcmp, limits, openers, procfs
from rbdagent.collect.node.kcmp import Kcmp, Kind, Twins
from rbdagent.model import NotObserved
from tests.support.node_files import FILES, OTHER_POD, POD, ROOT_MOUNT, Tree, gap_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collect.node.processes import ProcessEntry

LINE: Final = "7f0000000000-7f0000001000 r--p 00000000 fc:00 12   /data/db\n"
DENIED: Final = -1


class FakeKcmp(Kcmp):
    """Compares numbers: the shared object of each process."""

    def __init__(self, **shared: dict[int, int]) -> None:
        self.shared = shared
        self.asked = 0

    def order(self, first: int, second: int, kind: Kind) -> int:
        self.asked += 1
        found = self.shared.get(kind.name, {})
        if first not in found or second not in found:
            return 0 if first == second else DENIED
        difference = found[first] - found[second]
        return 0 if not difference else 1 if difference < 0 else 2


def first_of(twins: Twins, *pids: int) -> list[int | None]:
    return [twins.first_of(pid, POD) for pid in pids]


def test_processes_that_share_are_found_among_others() -> None:
    shared = {pid: pid % 10 * 7 % 10 for pid in range(100)}
    twins = Twins(FakeKcmp(VM=shared), Kind.VM)
    assert first_of(twins, *range(100)) == [None] * 10 + [pid % 10 for pid in range(10, 100)]


def test_a_process_is_compared_with_few_others() -> None:
    fake = FakeKcmp(VM={pid: pid * 997 % 1000 for pid in range(1000)})
    first_of(Twins(fake, Kind.VM), *range(1000))
    assert fake.asked < 1000 * 11


def test_an_ended_process_is_no_twin() -> None:
    fake = FakeKcmp(VM={1: 5, 2: 5})
    twins = Twins(fake, Kind.VM)
    assert first_of(twins, 1) == [None]
    del fake.shared["VM"][1]
    assert first_of(twins, 2) == [None]


def test_processes_of_different_pods_are_not_compared() -> None:
    twins = Twins(FakeKcmp(VM={1: 5, 2: 5}), Kind.VM)
    assert (twins.first_of(1, POD), twins.first_of(2, OTHER_POD)) == (None, None)


def test_without_the_system_call_no_process_has_a_twin() -> None:
    assert first_of(Twins(None, Kind.VM), 1, 1) == [None, None]


def test_the_kernel_compares_processes(tmp_path: Path) -> None:
    (tmp_path / "1" / "ns").mkdir(parents=True)
    (tmp_path / "1" / "ns" / "pid").symlink_to("/proc/self/ns/pid")
    made = Kcmp.of(tmp_path)
    assert made is not None
    own, parent = os.getpid(), os.getppid()
    assert made.is_shared(own, own, Kind.VM)
    assert made.is_shared(own, parent, Kind.VM) is False


def test_pids_of_another_namespace_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without hostPID, the host's /proc shows other pids than the system call."""
    (tmp_path / "1" / "ns").mkdir(parents=True)
    (tmp_path / "1" / "ns" / "pid").touch()
    assert Kcmp.of(tmp_path) is None
    monkeypatch.setattr(kcmp, "_NUMBERS", {})
    assert Kcmp.of(Path("/proc")) is None


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with a mapped image, and two processes of a pod."""
    made = Tree(tmp_path)
    made.device(0)
    made.namespace("own", ROOT_MOUNT)
    for pid in (77, 78):
        made.process(pid, "/app", namespace="own", pod=POD)
    return made


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeKcmp | None], None]:
    def set_up(fake: FakeKcmp | None) -> None:
        monkeypatch.setattr(Kcmp, "of", lambda _: fake)

    return set_up


def paths_of(tree: Tree) -> set[tuple[int, str]]:
    (mapping,) = tree.mappings()
    assert not isinstance(mapping.openers, NotObserved)
    return {(opener.process.pid, opener.path) for opener in mapping.openers}


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_shared_address_space_is_read_once_and_counts_for_both(
    tree: Tree, use: Callable[[FakeKcmp | None], None], *, is_shared: bool
) -> None:
    tree.write("proc/77/maps", LINE)
    use(FakeKcmp(VM={77: 1, 78: 1 if is_shared else 2}))
    assert paths_of(tree) == {(77, "/data/db")} | ({(78, "/data/db")} if is_shared else set())


def test_a_process_that_shared_memory_until_the_other_was_read_is_read_itself(
    tree: Tree, use: Callable[[FakeKcmp | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It executes another program between the two reads."""
    fake = FakeKcmp(VM={77: 1, 78: 1})
    use(fake)
    real = openers._mappings

    def mapped(entry: ProcessEntry, *arguments: object) -> object:
        fake.shared["VM"][78] = 2
        return real(entry, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(openers, "_mappings", mapped)
    tree.write("proc/78/maps", LINE)
    assert paths_of(tree) == {(78, "/data/db")}


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("cause", ["too large", "error", "ended"])
def test_what_was_not_read_of_a_shared_address_space_is_a_gap(
    tree: Tree,
    use: Callable[[FakeKcmp | None], None],
    monkeypatch: pytest.MonkeyPatch,
    cause: str,
    *,
    is_shared: bool,
) -> None:
    """Whether they still share it or not, no process counts as read."""
    fake = FakeKcmp(VM={77: 1, 78: 1})
    use(fake)
    if cause == "too large":
        for module in (openers, procfs):
            monkeypatch.setattr(module, "MAPS_SIZES", (10,))
    for pid in (77, 78):
        tree.write(f"proc/{pid}/maps", LINE)
    real = openers._mappings

    def mapped(entry: ProcessEntry, *arguments: object) -> object:
        if not is_shared:
            fake.shared["VM"][78] = 2
        if cause == "error" and entry.process.pid != 1:
            raise ValueError(cause)
        if cause == "ended" and entry.process.pid == 77:
            del fake.shared["VM"][77]
            return iter(())
        return real(entry, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(openers, "_mappings", mapped)
    if cause == "ended":
        assert paths_of(tree) == {(78, "/data/db")}
        return
    reason = gap_of(tree.observe()[1], FILES).reason
    for pid in (77, 78):
        assert f"process {pid} (app) of pod {POD}: " in reason


def test_a_shared_table_of_descriptors_is_read_once_and_counts_for_both(
    tree: Tree, use: Callable[[FakeKcmp | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only large tables are compared; both processes show the first descriptors themselves."""
    for module in (limits, openers, procfs):
        monkeypatch.setattr(module, "DESCRIPTOR_COUNTS", (1, 9))
    at = os.stat(tree.root).st_dev
    number = tree.number(0)
    by_number = {(os.major(at), os.minor(at)): number}
    monkeypatch.setattr(openers, "_by_number", lambda _: by_number)
    device = str(tree.root / "file")
    Path(device).touch()
    tree.open_files(77, "/dev/null", "/dev/null", device)
    tree.open_files(78, "/dev/null", "/dev/null", "/dev/null")
    use(FakeKcmp(FILES={77: 1, 78: 1}))
    assert paths_of(tree) == {(77, device), (78, device)}
    use(FakeKcmp(FILES={77: 1, 78: 2}))
    assert paths_of(tree) == {(77, device)}


def test_without_the_system_call_equal_large_address_spaces_wait_for_the_small_ones(
    tree: Tree, use: Callable[[FakeKcmp | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of them is read twice."""
    use(None)
    for module in (openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (10, 1000))
    for pid in (77, 78):
        rest = f"S 1 1 1 0 -1 0 {'0 ' * 10}1 0 1000 0 {'0 ' * 3}400000 500000 7ffe {'0 ' * 22}"
        tree.write(f"proc/{pid}/stat", f"{pid} (app) {rest}\n")
        tree.write(f"proc/{pid}/maps", LINE)
    begun = []
    real = openers._mappings

    def mapped(entry: ProcessEntry, *arguments: object) -> object:
        begun.append(entry.process.pid)
        return real(entry, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(openers, "_mappings", mapped)
    assert paths_of(tree) == {(77, "/data/db"), (78, "/data/db")}
    assert begun == [1, 77, 77, 78]
