"""rbdagent images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from rbdagent.cli.options import COLOR, VERBOSE, observing, option
from rbdagent.cli.output import data_text, layout_of, now_utc, print_text, progress
from rbdagent.commands import command as command_of
from rbdagent.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.model.inventory import ImageReport, Listing, PoolRequest

_INCOMPLETE: Final = 1


@click.command("images")
@click.argument("pools", nargs=-1, metavar="[POOL[/NAMESPACE]]...")
@click.option(
    "--unclaimed",
    is_flag=True,
    help="List the images that no PV and no VolumeSnapshotContent refers to.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Also list the images that an object refers to, and those of other programs.",
)
@option(
    "--output",
    "-o",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@VERBOSE
@COLOR
@observing
def command(
    *,
    pools: tuple[str, ...],
    unclaimed: bool,
    every: bool,
    output: str,
    settings: Callable[[], Settings],
) -> int:
    """Report RBD images that nothing in this cluster refers to.

    Without POOL, all pools with the application rbd are listed. The report only reads: it deletes
    nothing, and PVs of other Kubernetes clusters are not visible to it.

    Exits with code 1 if an image was not judged, or if something was not observed.
    """
    if not unclaimed:
        raise UsageError(
            "images has one report: --unclaimed",
            hint=(command_of("rbdagent images", options=("--unclaimed",)),),
        )
    chosen = replace(settings(), roots=None)
    if chosen.clusters is None:
        raise UsageError("images lists images of Ceph: omit --no-ceph")
    requests = tuple(map(_request, dict.fromkeys(pools)))
    report = _report(requests, chosen)
    print_text(_text(report, output, every=every))
    return 0 if report.is_complete else _INCOMPLETE


def _request(name: str) -> PoolRequest:
    """Return a pool that the user named.

    Raises:
        UsageError: it is the name of an image, or empty.
    """
    from rbdagent.model.inventory import PoolRequest

    pool, slash, namespace = name.partition("/")
    if not pool or "/" in namespace or (slash and not namespace):
        raise UsageError(f"{name!r} is not a pool", hint="write POOL or POOL/NAMESPACE")
    return PoolRequest(pool=pool, namespace=namespace if slash else None)


def _report(requests: tuple[PoolRequest, ...], settings: Settings) -> ImageReport:
    from rbdagent.inventory import collect_inventory

    with progress(settings.timeout_s) as show:
        observed = collect_inventory(requests, settings, show=show)
    _check_pools(observed.listing)
    from rbdagent.verdicts.image_verdict import judge_images

    return judge_images(observed, observed_at=now_utc())


def _check_pools(listing: Listing) -> None:
    """Raise NotFoundError for a pool that no cluster has: a typing error is not an empty pool."""
    if not listing.absent:
        return
    names = ", ".join(map(str, listing.absent))
    clusters = ", ".join(listing.clusters)
    raise NotFoundError(
        f"no such pool in {clusters}: {names}", hint="ceph osd pool ls lists the pools"
    )


def _text(report: ImageReport, output: str, *, every: bool) -> str:
    from rbdagent.report.text.images import image_list, is_listed

    if output in {"json", "yaml"}:
        from rbdagent.report.json.images import image_list as image_list_data

        listed = [one for one in report.images if is_listed(one, every=every)]
        return data_text(image_list_data(report, listed), output)
    return image_list(report, layout_of(output), every=every)
