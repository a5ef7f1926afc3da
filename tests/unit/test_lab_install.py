"""Programs that the lab runs without building them."""

from __future__ import annotations

import lzma
import os
from typing import TYPE_CHECKING

import pytest

from tests.lab.install import shared_cephcsi

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RBDAGENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "checkout"


def _pack(checkout: Path, content: bytes) -> Path:
    packed = checkout.parent / "shared" / "cephcsi" / "cephcsi.xz"
    packed.parent.mkdir(parents=True, exist_ok=True)
    packed.write_bytes(lzma.compress(content))
    return packed


def test_cephcsi_is_none_without_a_packed_file(checkout: Path) -> None:
    assert shared_cephcsi(checkout) is None


def test_packed_cephcsi_is_unpacked_and_executable(checkout: Path) -> None:
    _pack(checkout, b"#!/bin/sh\n")
    program = shared_cephcsi(checkout)
    assert program is not None
    assert program.read_bytes() == b"#!/bin/sh\n"
    assert os.access(program, os.X_OK)


def test_newer_packed_cephcsi_replaces_the_unpacked_file(checkout: Path) -> None:
    _pack(checkout, b"old")
    first = shared_cephcsi(checkout)
    assert first is not None
    os.utime(_pack(checkout, b"new"), (2e9, 2e9))
    second = shared_cephcsi(checkout)
    assert second is not None
    assert second.read_bytes() == b"new"
