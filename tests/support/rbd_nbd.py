"""Command lines of rbd-nbd, and which image the program itself takes from each.

Measured with rbd-nbd 16.2.15 (Debian 12) and 18.2.7 (Debian 13): ``tests/integration/
test_rbd_nbd.py`` runs each line with ``unmap``. The program parses all its commands alike, and
prints ``IMAGE is not mapped`` without a connection to Ceph. 16.2 and 18.2 print a namespace without
the slash after it: ``k8s//nsimg``.
"""

from __future__ import annotations

from typing import Final

from rbdagent.model import ImageSpec

IMAGE: Final = ImageSpec(pool="k8s", name="img")
COMMAND: Final = "COMMAND"
"""In place of ``map``, ``attach`` or ``unmap``."""

SERVED: Final[dict[str, ImageSpec]] = {
    "COMMAND k8s/img": IMAGE,
    "COMMAND k8s/ns/img@snap": ImageSpec(pool="k8s", namespace="ns", name="img"),
    "COMMAND a/b/c/d": ImageSpec(pool="a", namespace="b", name="c/d"),
    "COMMAND k8s//img": ImageSpec(pool="k8s", name="/img"),
    "COMMAND --read-only k8s/img": IMAGE,
    "COMMAND --read_only k8s/img": IMAGE,
    "COMMAND --exclusive k8s/img --quiesce": IMAGE,
    "--exclusive COMMAND k8s/img": IMAGE,
    "COMMAND --id foo k8s/img": IMAGE,
    "COMMAND --id=foo k8s/img": IMAGE,
    "COMMAND -n client.x k8s/img": IMAGE,
    "COMMAND --cluster east k8s/img": IMAGE,
    "COMMAND --cookie abc k8s/img": IMAGE,
    "COMMAND --cookie=abc k8s/img": IMAGE,
    "COMMAND --try-netlink --show-cookie k8s/img": IMAGE,
    "COMMAND -d k8s/img": IMAGE,
    "COMMAND -f k8s/img": IMAGE,
    "COMMAND --foreground k8s/img": IMAGE,
    "COMMAND --rbd_cache false k8s/img": IMAGE,
    "COMMAND --rbd_cache k8s/img": IMAGE,
    "COMMAND --rbd-cache=false k8s/img": IMAGE,
    "--rbd_cache true COMMAND k8s/img": IMAGE,
    "COMMAND --debug-ms 1 --debug_rbd=20 k8s/img": IMAGE,
    "COMMAND -m 127.0.0.1 k8s/img": IMAGE,
    "COMMAND --mon_host 127.0.0.1 k8s/img": IMAGE,
    "COMMAND --keyfile=/x k8s/img": IMAGE,
    "-k /x COMMAND k8s/img": IMAGE,
    "COMMAND -K /x k8s/img": IMAGE,
    "COMMAND --keyring /x k8s/img": IMAGE,
    "COMMAND --timeout 5 k8s/img": IMAGE,
    "COMMAND --nbds_max 5 --max-part=5 k8s/img": IMAGE,
    "COMMAND --io-timeout 5 --reattach-timeout 300 k8s/img": IMAGE,
    "COMMAND --encryption-format luks1 --encryption-passphrase-file /x k8s/img": IMAGE,
    "COMMAND --no-mon-config k8s/img": IMAGE,
    "COMMAND --quiesce-hook /h k8s/img": IMAGE,
    "COMMAND --setuser root k8s/img": IMAGE,
    "COMMAND --log_file=/x k8s/img": IMAGE,
    "--rbd-default-pool other COMMAND img": ImageSpec(pool="other", name="img"),
    "COMMAND --rbd_default_pool=other img": ImageSpec(pool="other", name="img"),
}
"""Command lines that show their image."""

WITHOUT_POOL: Final[dict[str, ImageSpec]] = {
    "COMMAND img": ImageSpec(pool="rbd", name="img"),
    "COMMAND img@snap": ImageSpec(pool="rbd", name="img"),
    "COMMAND /img": ImageSpec(pool="rbd", name="/img"),
    "COMMAND k8s/": ImageSpec(pool="rbd", name="k8s/"),
}
"""Command lines without a pool: ``rbd_default_pool`` of the configuration names it, or rbd."""

REFUSED: Final = (
    "COMMAND",
    "COMMAND k8s/img extra",
    "COMMAND -s k8s/img",
    "COMMAND -p k8s img",
    "COMMAND --pool k8s img",
    "COMMAND --image img",
    "COMMAND -- k8s/img",
    "COMMAND k8s/img -- x",
    "-- COMMAND k8s/img",
    "COMMAND k8s/img@",
    "COMMAND @snap",
    "COMMAND k8s/img@a@b",
    "COMMAND k8s/img@a/b",
    "COMMAND -o a k8s/img",
    "COMMAND -c k8s/img",
)
"""Command lines that the program refuses: no process serves a device with them."""

UNKNOWN_OPTIONS: Final = (
    "COMMAND --foo k8s/img",
    "COMMAND --foo=bar k8s/img",
    "COMMAND --namespace ns k8s/img",
)
"""Command lines that the program refuses because Ceph's configuration has no such option.

The parser cannot know all of these options: it takes them for one that Ceph has.
"""
