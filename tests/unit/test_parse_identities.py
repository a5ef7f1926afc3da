"""Identities in the formats of krbd, Ceph, ceph-csi and kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.errors import ParseError
from rbdagent.model import (
    BlocklistEntry,
    CsiSource,
    EntityAddress,
    ImageIdentity,
    ImageSpec,
    InTreeRbdSource,
    NotObserved,
    OtherSource,
    VolumeSource,
)
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_blocklist_entry,
    parse_blocklist_range,
    parse_client,
)
from rbdagent.parse.handle import (
    attachment_name,
    migrated_handle,
    parse_migrated_handle,
    parse_volume_handle,
    staging_hash,
)
from rbdagent.parse.krbd import parse_osdc, parse_snapshot, parse_user
from rbdagent.parse.mountinfo import parse_mount_line, unescape
from rbdagent.parse.volume import image_of_source

if TYPE_CHECKING:
    import ipaddress

HANDLE = "0001-000a-lab-ceph-1-0000000000000001-a5aedea1-28da-40b4-92b8-33fd7de38647"
"""The volume handle in recording 12."""

IPS = st.ip_addresses().map(str)


@given(
    ip=IPS,
    port=st.integers(0, 65535),
    nonce=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["", "v1:", "v2:", "any:"]),
)
def test_address_is_equal_with_any_type_prefix(ip: str, port: int, nonce: int, kind: str) -> None:
    address = EntityAddress(ip=ip, port=port, nonce=nonce)
    assert parse_address(f"{kind}{address}", where="test") == address


def test_ipv6_address_has_one_canonical_form() -> None:
    long = parse_address("[fd00:0:0::0001]:0/7", where="test")
    assert long == parse_address("[fd00::1]:0/7", where="test")
    assert str(long) == "[fd00::1]:0/7"


@given(st.text(max_size=40))
def test_text_that_is_no_address_is_shown_in_the_error(text: str) -> None:
    try:
        parse_address(text, where="here")
    except ParseError as error:
        assert "here" in str(error)
        assert repr(text) in str(error)


def test_address_vector_is_parsed_to_its_first_address() -> None:
    vector = "[v2:10.0.0.1:6800/5,v1:10.0.0.1:6801/5]"
    assert parse_address_vector(vector, where="test").port == 6800


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("10.77.0.11:0/324736353", BlocklistEntry(network="10.77.0.11", nonce=324736353)),
        ("10.77.0.11:0/0", BlocklistEntry(network="10.77.0.11")),
        ("[fd00::1]:0/9", BlocklistEntry(network="fd00::1", nonce=9)),
        ("cidr:10.77.0.52:0/32", BlocklistEntry(network="10.77.0.52/32")),
        ("cidr:10.1.0.0:0/16", BlocklistEntry(network="10.1.0.0/16")),
        ("cidr:[fd00:1::]:0/64", BlocklistEntry(network="fd00:1::/64")),
    ],
)
def test_blocklist_entry_is_parsed(text: str, entry: BlocklistEntry) -> None:
    assert parse_blocklist_entry(text, until="", where="test") == entry


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.77.0.52:0/32", "10.77.0.52/32"),
        ("10.8.0.0:0/24", "10.8.0.0/24"),
        ("[fd00:1::]:0/64", "fd00:1::/64"),
        ("[FD00:3::1]:0/128", "fd00:3::1/128"),
    ],
)
def test_blocklisted_range_is_parsed_as_ceph_prints_it(text: str, network: str) -> None:
    """Assert the network; Ceph 16.2 printed the text after ``ceph osd blocklist range add``."""
    entry = BlocklistEntry(network=network, until="then")
    for printed in (text, f"cidr:{text}"):
        assert parse_blocklist_range(printed, until="then", where="test") == entry
    assert str(entry) == network


@given(
    st.one_of(
        st.tuples(st.ip_addresses(v=4), st.integers(0, 32)),
        st.tuples(st.ip_addresses(v=6), st.integers(0, 128)),
    )
)
def test_blocklisted_range_keeps_its_address(
    drawn: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int],
) -> None:
    ip, bits = drawn
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    entry = parse_blocklist_range(f"{host}:0/{bits}", until="", where="test")
    assert str(entry) == f"{ip}/{bits}"


@pytest.mark.parametrize(
    "text", ["10.8.0.0/24", "10.8.0.0:0/33", "fd00::/64", "[fd00::]:0/129", "worker-1:0/8", ""]
)
def test_text_that_is_no_range_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_blocklist_range(text, until="", where="test")


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        (BlocklistEntry(network="10.77.0.11", nonce=9), "10.77.0.11:0/9"),
        (BlocklistEntry(network="10.77.0.11"), "10.77.0.11:0/0"),
        (BlocklistEntry(network="fd00::1", nonce=9), "[fd00::1]:0/9"),
        (BlocklistEntry(network="10.77.1.52/24"), "10.77.1.52/24"),
        (BlocklistEntry(network="fd00:1::/64"), "fd00:1::/64"),
    ],
)
def test_entry_is_written_as_an_argument_of_blocklist_rm(entry: BlocklistEntry, given: str) -> None:
    assert str(entry) == given


@pytest.mark.parametrize("text", ["client4118", "client.4118", "client4118\n"])
def test_client_is_parsed_with_and_without_its_dot(text: str) -> None:
    assert parse_client(text, where="test") == 4118


@pytest.mark.parametrize("text", ["4118", "client", "client.x", "osd.3", ""])
def test_text_that_is_no_client_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError, match=r"client\.4118"):
        parse_client(text, where="test")


CLUSTER_IDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1)


@given(cluster=CLUSTER_IDS, pool=st.integers(0, 2**63), uuid=st.uuids())
def test_composed_handle_is_parsed_to_its_parts(cluster: str, pool: int, uuid: object) -> None:
    """Assert the parts; the length in a handle counts bytes, because ceph-csi is written in Go."""
    handle = f"0001-{len(cluster.encode()):04x}-{cluster}-{pool:016x}-{uuid}"
    parsed = parse_volume_handle(handle)
    assert (parsed.cluster_id, parsed.pool_id, parsed.uuid) == (cluster, pool, str(uuid))


@given(st.text(max_size=120))
def test_text_is_a_handle_or_a_parse_error(text: str) -> None:
    for read in (parse_volume_handle, parse_migrated_handle):
        try:
            read(text)
        except ParseError as error:
            assert error.text == text


def test_recorded_handle_is_parsed() -> None:
    parsed = parse_volume_handle(HANDLE)
    assert parsed.cluster_id == "lab-ceph-1"
    assert parsed.pool_id == 1
    assert parsed.uuid == "a5aedea1-28da-40b4-92b8-33fd7de38647"


def test_derived_kubernetes_names_equal_the_recorded_names() -> None:
    """Assert the VolumeAttachment and the staging directory of the handle in recording 12."""
    assert attachment_name(HANDLE, "rbd.csi.ceph.com", "n1") == (
        "csi-d7dc12f354a8b8129db930a322d0f845304a81cb488b6cc50032e41465ada8b2"
    )
    assert staging_hash(HANDLE) == (
        "8531d777b0e1a99819838f7fe3c30aebe2e39c9f5a9798ff5cc9021d3e02e587"
    )


def test_migrated_handle_is_parsed_to_pool_and_image() -> None:
    image = "kubernetes-dynamic-pvc-e0b45b52-7e09-47d3-8f1b-806995fa4412"
    parsed = parse_migrated_handle(migrated_handle(("10.0.0.1:6789",), "replica_pool", image))
    assert (parsed.pool, parsed.image) == ("replica_pool", image)


def _csi(handle: str, **attributes: str) -> CsiSource:
    return CsiSource(
        driver="rbd.csi.ceph.com",
        volume_handle=handle,
        attributes=tuple(sorted(attributes.items())),
    )


@pytest.mark.parametrize(
    ("source", "image"),
    [
        (
            _csi(HANDLE, pool="k8s", imageName="csi-vol-x"),
            ImageIdentity(spec=ImageSpec(pool="k8s", name="csi-vol-x"), fsid=None, pool_id=1),
        ),
        (
            _csi(HANDLE, pool="k8s", radosNamespace="tenant"),
            ImageIdentity(
                spec=ImageSpec(
                    pool="k8s",
                    namespace="tenant",
                    name="csi-vol-a5aedea1-28da-40b4-92b8-33fd7de38647",
                ),
                fsid=None,
                pool_id=1,
            ),
        ),
        (
            _csi(HANDLE, pool="k8s", volumeNamePrefix="team-"),
            ImageIdentity(
                spec=ImageSpec(pool="k8s", name="team-a5aedea1-28da-40b4-92b8-33fd7de38647"),
                fsid=None,
                pool_id=1,
            ),
        ),
        (
            _csi("rox1", pool="k8s", staticVolume="true"),
            ImageIdentity(spec=ImageSpec(pool="k8s", name="rox1"), fsid=None, namespace_by=""),
        ),
        (
            _csi("rox1", pool="k8s", staticVolume="1", imageName="another"),
            ImageIdentity(spec=ImageSpec(pool="k8s", name="rox1"), fsid=None, namespace_by=""),
        ),
        (
            _csi(HANDLE, pool="k8s", staticVolume="True"),
            ImageIdentity(spec=ImageSpec(pool="k8s", name=HANDLE), fsid=None, namespace_by=""),
        ),
        (
            InTreeRbdSource(spec=ImageSpec(pool="rbd", name="foo")),
            ImageIdentity(spec=ImageSpec(pool="rbd", name="foo"), fsid=None),
        ),
        (OtherSource(kind="nfs"), None),
    ],
)
def test_volume_source_leads_to_its_image(
    source: VolumeSource, image: ImageIdentity | None
) -> None:
    assert image_of_source(source) == image


@pytest.mark.parametrize("source", [_csi("no-such-form", pool="k8s"), _csi("mig_broken")])
def test_image_of_a_malformed_handle_is_not_observed(source: CsiSource) -> None:
    answer = image_of_source(source)
    assert isinstance(answer, NotObserved)
    assert source.volume_handle in answer.reason


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_octal_escapes_of_the_kernel_are_decoded(path: str) -> None:
    """Decode the escapes of seq_path: space, tab, newline, backslash (fs/proc_namespace.c)."""
    escaped = path.encode()
    for byte in (b"\\", b" ", b"\t", b"\n"):
        escaped = escaped.replace(byte, b"\\%03o" % byte[0])
    assert unescape(escaped) == path


def test_recorded_mount_line_is_read_only_by_its_super_block() -> None:
    """Assert read-only: the mount has the flag rw, but its super block has ro (recording 24)."""
    line = (
        b"181 63 252:32 / /var/lib/kubelet/pods/e6/volumes/kubernetes.io~csi/pv-rox1/mount "
        b"rw,relatime shared:27 - ext4 /dev/rbd2 ro,stripe=64"
    )
    mount = parse_mount_line(line, where="test")
    assert str(mount.device) == "252:32"
    assert mount.path.endswith("/pv-rox1/mount")
    assert (mount.fs_type, mount.source, mount.read_only) == ("ext4", "/dev/rbd2", True)


@pytest.mark.parametrize(
    ("options", "read_only"),
    [
        (b"rw,stripe=64", False),
        (b"ro,stripe=64", True),
        (b"rw,stripe=4096,emergency_ro", True),
        (b"rw,shutdown", True),
    ],
)
def test_super_block_that_stopped_after_an_error_takes_no_writes(
    options: bytes, *, read_only: bool
) -> None:
    line = b"181 63 252:32 / /data rw,relatime - ext4 /dev/rbd2 " + options
    assert parse_mount_line(line, where="test").read_only is read_only


@given(st.binary(max_size=80))
def test_broken_mount_line_is_a_parse_error(line: bytes) -> None:
    try:
        parse_mount_line(line, where="mountinfo of pid 7")
    except ParseError as error:
        assert "pid 7" in str(error)


OSDC = """\
REQUESTS 3 homeless 0
376\tosd0\t1.fd7ca1ae\t1.6\t[0]/0\t[0]/0\te10\trbd_data.101f902470b8.000000000000000f\t0x400014\t1\tread
389\tosd0\t1.b01a9549\t1.1\t[0]/0\t[0]/0\te10\trbd_header.101f38add426\t0x400024\t1\twatch-ping
390\tosd0\t1.f6fe8807\t1.7\t[0]/0\t[0]/0\te10\trbd_header.101f902470b8\t0x400024\t1\twatch-ping
LINGER REQUESTS
18446462598732840961\tosd0\t1.b01a9549\t1.1\t[0]/0\t[0]/0\te10\trbd_header.101f38add426\t0x20\t0\tWC/0
BACKOFFS
"""
"""osdc of a client whose OSD hangs (recording 29), without the second entry of LINGER REQUESTS."""


@pytest.mark.parametrize(
    ("image_id", "watched", "requests", "places"),
    [
        ("101f38add426", True, (), ()),
        (
            "101f902470b8",
            False,
            (
                "read rbd_data.101f902470b8.000000000000000f",
                "watch-ping rbd_header.101f902470b8",
            ),
            ("PG 1.6 on osd.0", "PG 1.7 on osd.0"),
        ),
        ("101f", False, (), ()),
    ],
)
def test_osdc_is_parsed_to_watches_and_requests(
    image_id: str, *, watched: bool, requests: tuple[str, ...], places: tuple[str, ...]
) -> None:
    parsed = parse_osdc(OSDC)
    found = parsed.of_image(header=f"rbd_header.{image_id}", data_prefix=f"rbd_data.{image_id}")
    assert found == (watched, requests, places)


def test_request_that_no_osd_takes_has_a_place_without_an_osd() -> None:
    """The kernel prints osd-1 for a placement group without a primary."""
    parsed = parse_osdc(OSDC.replace("\tosd0\t", "\tosd-1\t"))
    found = parsed.of_image(header="rbd_header.101f902470b8", data_prefix="rbd_data.101f902470b8")
    assert found.places == ("PG 1.6 on no OSD", "PG 1.7 on no OSD")


def test_config_info_is_parsed_to_the_user_without_the_key() -> None:
    line = "10.77.0.1:6789 name=csi-rbd-node,key=client.csi-rbd-node k8s csi-vol-x -"
    assert parse_user(line) == "csi-rbd-node"
    assert parse_user("") is None


def test_head_of_an_image_is_not_a_snapshot() -> None:
    assert parse_snapshot("-\n") is None
    assert parse_snapshot("monday\n") == "monday"
