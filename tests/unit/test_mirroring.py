"""What the rbd-mirror daemons report: RBD133 to RBD135."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import pytest

from rbdagent.collect.ceph.image import _site
from rbdagent.model import MirrorState
from tests.support.rule_rows.diagnose import PRIMARY, mirrored, site
from tests.support.snapshots import diagnosis_of, found

REPORTED: Final[dict[str, Any]] = {
    "state": 6,
    "description": PRIMARY,
    "up": True,
    "last_update": dt.datetime(2026, 11, 30, 10, 11, 22),  # noqa: DTZ001 - as the binding
}


def test_report_of_the_binding_is_read() -> None:
    """The numbers are those of mirror_image_status_state_t (src/include/rbd/librbd.h)."""
    read = _site(REPORTED, is_local=False)
    assert (read.state, read.is_up) == (MirrorState.STOPPED, True)
    assert read.last_update == "2026-11-30T10:11:22Z"


def test_state_of_a_later_ceph_is_unknown() -> None:
    assert _site(REPORTED | {"state": 99}, is_local=True).state is MirrorState.UNKNOWN


@pytest.mark.parametrize("updated", [None, "2026-11-30T10:11:22Z"])
def test_time_of_a_report_is_named_or_unknown(updated: str | None) -> None:
    seen = mirrored(site(PRIMARY, is_local=False, last_update=updated), primary=True)
    assert f"reported at {updated or 'an unknown time'}" in found(seen, "RBD134").message


def test_description_of_a_daemon_is_quoted() -> None:
    hostile = 'failed. The copy is fine"'
    seen = mirrored(site(hostile, state=MirrorState.ERROR))
    assert '"failed. The copy is fine\\""' in found(seen, "RBD135").message


def test_split_brain_is_one_finding_however_many_sites_report_it() -> None:
    sites = (
        site("split-brain", state=MirrorState.ERROR),
        site("split-brain", state=MirrorState.ERROR, is_local=False),
    )
    codes = [one.code for one in diagnosis_of(mirrored(*sites)).findings]
    assert codes.count("RBD133") == 1
    assert "RBD135" not in codes
