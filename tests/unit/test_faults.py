"""What error numbers of Ceph's calls mean: by call, in texts of ceph-csi and in findings."""

from __future__ import annotations

import errno
from typing import Final

import pytest

from rbdagent.parse.faults import FAULTS, Call, Fault, failure_in, fault_of
from tests.support.quoted_messages import claim_event, of_class, of_map, pod_event
from tests.support.rule_tables import stage
from tests.support.snapshots import codes, found

CONNECTING: Final = "failed to get connection: connecting failed: rados: ret=-{}, x"
OPENING: Final = "failed to open IOContext for pool k8s: rados: ret=-{}, x"
IN_IMAGE: Final = "fail to check rbd image status: (rbd: ret=-{}, x)"
MAPPING: Final = of_map(1, "rbd: sysfs write failed\nrbd: map failed: ({}) x")
ADDING: Final = of_map(
    1, "rbd: failed to add secret 'client.csi' to kernel\nrbd: map failed: ({}) x"
)
RUNNING: Final = of_map(1, "rbd: couldn't connect to the cluster!").replace("s 1)", "s {})")
TEXTS: Final = {
    Call.CONNECT: CONNECTING,
    Call.POOL: OPENING,
    Call.IMAGE: IN_IMAGE,
    Call.MAP: MAPPING,
    Call.ADD_KEY: ADDING,
    Call.RUN: RUNNING,
}
"""The text of ceph-csi@52fcb7b for each failed call; it does not query monitors itself."""


@pytest.mark.parametrize(
    ("call", "number"), [(call, number) for call in TEXTS for number in FAULTS[call]]
)
def test_failed_call_is_identified_by_call_and_number(call: Call, number: int) -> None:
    failure = failure_in(TEXTS[call].format(number))
    assert failure is not None
    assert (failure.call, failure.number) == (call, number)
    assert failure.fault == fault_of(call, -number) == FAULTS[call][number]


def test_number_has_a_different_meaning_in_each_call() -> None:
    calls = (Call.CONNECT, Call.POOL, Call.IMAGE)
    assert [fault_of(call, errno.ENOENT) for call in calls] == [
        Fault.NO_CONFIGURATION,
        Fault.NO_POOL,
        Fault.NO_IMAGE,
    ]


def test_number_that_the_table_lacks_has_no_meaning() -> None:
    failure = failure_in(CONNECTING.format(121))
    assert failure is not None
    assert failure.fault is None
    assert fault_of(Call.CONNECT, None) is None
    assert failure_in("out of luck") is None


SAID_TO_POD: Final = {
    (CONNECTING, errno.ENOENT): "RBD734",
    (CONNECTING, errno.EPERM): "RBD736",
    (CONNECTING, errno.EACCES): "RBD736",
    (CONNECTING, errno.EINVAL): "RBD747",
    (CONNECTING, errno.ETIMEDOUT): "RBD735",
    (OPENING, errno.EPERM): "RBD736",
    (IN_IMAGE, errno.EPERM): "RBD736",
    (IN_IMAGE, errno.ENOENT): "RBD738",
    (MAPPING, errno.EPERM): "RBD736",
    (MAPPING, errno.ENOENT): "RBD738",
    (MAPPING, errno.EIO): "RBD744",
    (MAPPING, errno.ENXIO): "RBD740",
    (MAPPING, errno.EACCES): "RBD736",
    (MAPPING, errno.EINVAL): "RBD741",
    (MAPPING, errno.EOPNOTSUPP): "RBD741",
    (MAPPING, errno.ESHUTDOWN): "RBD308",
    (MAPPING, errno.ETIMEDOUT): "RBD735",
    (ADDING, errno.EPERM): "RBD744",
    (ADDING, errno.EINVAL): "RBD747",
    (ADDING, 524): "RBD747",
    (RUNNING, errno.EACCES): "RBD736",
    (RUNNING, errno.ESHUTDOWN): "RBD308",
    (RUNNING, errno.ETIMEDOUT): "RBD735",
}


@pytest.mark.parametrize(
    ("text", "number", "code"), [(*key, code) for key, code in SAID_TO_POD.items()]
)
def test_failed_call_leads_to_its_finding(text: str, number: int, code: str) -> None:
    assert code in codes(pod_event(stage(text.format(number))))


SAID_TO_CLAIM: Final = {
    (CONNECTING, errno.ENOENT): "finds no monitors or no keyring",
    (CONNECTING, errno.EPERM): "does not accept the key",
    (CONNECTING, errno.EACCES): "Ceph refuses the login",
    (CONNECTING, errno.EINVAL): "the user's key is malformed",
    (CONNECTING, errno.ETIMEDOUT): "monitors of the Ceph cluster cannot be reached",
    (CONNECTING, errno.ESHUTDOWN): "on the blocklist",
    (OPENING, errno.ENOENT): "the pool that its class names does not exist",
    (OPENING, errno.EPERM): "may not use the pool",
    (IN_IMAGE, errno.EACCES): "may not use the pool",
    (IN_IMAGE, errno.ENOENT): "an image that it needs",
    (IN_IMAGE, errno.ESHUTDOWN): "on the blocklist",
    # For calls other than a connection, 22 shows nothing about the key.
    (IN_IMAGE, errno.EINVAL): "rbd: ret=-22",
}


@pytest.mark.parametrize(
    ("text", "number", "means"), [(*key, means) for key, means in SAID_TO_CLAIM.items()]
)
def test_failed_call_is_reported_for_a_claim(text: str, number: int, means: str) -> None:
    assert means in found(claim_event(of_class(text.format(number)).text), "RBD607").message
