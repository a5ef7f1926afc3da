"""Why a provisioner that was asked for a volume has not made it: silent, or failing."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import Template, command, filled, kubectl, template
from rbdagent.correlate.names import node_named
from rbdagent.diagnose.binding import (
    PROVISIONER,
    RETRY_S,
    SILENT,
    annotate_claim,
    binder,
    describe_claim,
    is_fresh,
    is_over,
    lapsed,
    last_words,
    live_users,
    since,
    spoken_lease,
    told_of_claim,
    users_seen,
    weight,
    words,
)
from rbdagent.diagnose.case import LIST_CONTROLLERS, Case, finding, quoted
from rbdagent.diagnose.times import GRACE, spoken
from rbdagent.model import (
    Claim,
    Command,
    DriverPod,
    Finding,
    Heals,
    KubeEvent,
    Lease,
    NotObserved,
    StorageClass,
    observed_of,
)
from rbdagent.parse.handle import lease_names

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGUN: Final = timedelta(minutes=3)
"""ceph-csi's provisioner gives one call 150 s; after that it says that it failed."""
_SELF_LINK: Final = "selfLink was empty"
_NEEDS_SELF_LINK: Final = re.compile(
    r"(?:^|/)csi-provisioner:v?(?:0\.|1\.[0-2](?:\.|$)|1\.3\.[01]$)"
    r"|external_storage/|(?:^|/)(?:rbd|cephfs|nfs-client)-provisioner[:@]"
)
"""csi-provisioner before 1.4, and every tag of what was kubernetes-incubator/external-storage."""
_WITHOUT_SELF_LINK: Final = (1, 20)
_OLD_RBD: Final = ("rbd-provisioner", "ceph.com/rbd")
"""An image, and the name that it serves where none is given to it."""
_BINDER: Final = "persistentvolume-controller"
_FAILED: Final = "ProvisioningFailed"
_IN_TREE: Final = "kubernetes.io/"
_HANDED: Final = "ExternalProvisioning"
_BEGAN: Final = "Provisioning"
_DONE: Final = "ProvisioningSucceeded"
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
# GenerateAccessibilityRequirements, pkg/controller/topology.go: "for node" in external-provisioner
# v6.3.0, "on CSINode" in earlier versions.
_NO_TOPOLOGY: Final = re.compile(
    r"no topology key found (?:on CSINode|for node) (?P<node>[a-z0-9][a-z0-9.-]*)"
)
_NO_NODE: Final = re.compile(
    r"error getting CSINode|failed to get selected CSINode|"
    r'nodes "[^"]*" not found|csinode\S* "[^"]*" not found'
)
_HANGS: Final = re.compile(
    r"DeadlineExceeded|an operation with the given Volume ID .* already exists"
)
_ERROR: Final = re.compile(r'failed to provision volume with StorageClass "[^"]*": (?P<error>.*)')


def server_version(case: Case) -> tuple[int, int] | None:
    """Give major and minor version of the API server."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.version, NotObserved):
        return None
    found = _VERSION.match(kube.version)
    return None if found is None else (int(found[1]), int(found[2]))


def explained(case: Case, claim: Claim, found: StorageClass) -> Iterator[Finding]:
    """RBD605 to RBD608, RBD617 to RBD622: how far its provisioner is with a claim."""
    own = [each for each in told_of_claim(case, claim) if _is_provisioners(each, found)]
    last = next((each for each in reversed(own) if each.reason in {_FAILED, _DONE}), None)
    failed = last if last is not None and last.reason == _FAILED else None
    asked = _asked_at(case, claim, found)
    stuck = _stuck(case, claim, failed, found) if is_over(SILENT, asked, case) else None
    if stuck is not None:
        yield stuck
    elif failed is not None and is_fresh(failed, case):
        yield _fails(case, claim, found, failed)
    elif _is_under_way(case, own, asked):
        yield _under_way(case, claim, found, own[-1].last_seen if own else asked)
    else:
        yield _silent(case, claim, found, asked, begun=bool(own))


def _under_way(case: Case, claim: Claim, found: StorageClass, begun: str | None) -> Finding:
    return finding(
        "RBD605",
        f"pvc {claim.ref}",
        f"The volume of claim {claim.ref} is being made by {found.provisioner}, for "
        f"{spoken(since(begun, case))}.",
        evidence=last_words(case, claim),
    )


def _is_provisioners(event: KubeEvent, found: StorageClass) -> bool:
    """Tell whether an event is the provisioner's; an in-tree one is the PV controller's own."""
    if event.reason not in {_FAILED, _BEGAN, _DONE}:
        return False
    return event.reporter != _BINDER or found.provisioner.startswith(_IN_TREE)


def _asked_at(case: Case, claim: Claim, found: StorageClass) -> str | None:
    """Give when a claim was handed to its provisioner, as nearly as can be told.

    The PV controller says so, and says it again at every look. Without its word: not before the
    claim, its class and, where that waits for a pod, the newest such pod were there.
    """
    handed = [each for each in told_of_claim(case, claim) if each.reason in {_HANDED, _BEGAN}]
    words = [each.first_seen or each.last_seen or "" for each in handed]
    if words:
        return min(words)
    made = [claim.created_at, found.created_at]
    if claim.selected_node is not None:
        made += [each.created_at for each in live_users(case, claim)]
    return max((each for each in made if each), default=None)


def _is_under_way(case: Case, own: list[KubeEvent], asked: str | None) -> bool:
    if not is_over(SILENT, asked, case):
        return True
    return bool(own) and own[-1].reason == _BEGAN and not is_over(BEGUN, own[-1].last_seen, case)


# --------------------------------------------------------------------------------------------------
# It fails
# --------------------------------------------------------------------------------------------------


_YAML: Final = ("-o", "yaml")


class _Known(NamedTuple):
    """A text of ceph-csi or external-provisioner, and what it means; groups fill the words."""

    text: re.Pattern[str]
    means: str
    remedy: str
    command: Template | None = None


_KNOWN: Final = (
    _Known(
        re.compile(r"error getting secret (?P<name>\S+) in namespace (?P<namespace>\S+):"),
        "the secret {namespace}/{name} that its class names is not there, or may not be read",
        "Create that secret (userID and userKey of a Ceph user with `profile rbd`), or make the "
        "class anew with the secret's right name: a class's parameters cannot be changed.",
        template("kubectl get secret", "{name}", namespace="{namespace}"),
    ),
    _Known(
        re.compile("failed to get name and namespace template from params"),
        "its class names a secret's name without its namespace, or the other way round",
        "Make the class anew with both csi.storage.k8s.io/provisioner-secret-name and "
        "-namespace: a class's parameters cannot be changed.",
    ),
    _Known(
        # rados_connect, before any pool or image is asked for (internal/util/conn_pool.go).
        re.compile(r"connecting failed: rados: ret=-2\b"),
        "its driver finds no keyring or no Ceph configuration to connect with",
        "Look at the ConfigMap with the driver's ceph.conf and keyring (ceph-config), which its "
        "Deployment mounts at /etc/ceph, and at the secret that the class names.",
        template("kubectl get configmap -A --field-selector metadata.name=ceph-config -o yaml"),
    ),
    _Known(
        re.compile(r"ret=-108\b"),
        "the Ceph client of the provisioner's node is on the blocklist",
        "`ceph osd blocklist ls` shows the entry. Restart the provisioner's pod: it connects as a "
        "new client.",
        template("ceph osd blocklist ls"),
    ),
    _Known(
        re.compile(r"ret=-13\b|Permission denied"),
        "Ceph does not accept the key of the class's secret",
        "Put the right userID and userKey into the secret that the class names (userKey is the "
        "key alone, without quotes and line end).",
    ),
    _Known(
        re.compile(r"ret=-110\b|Connection timed out"),
        "the monitors of the Ceph cluster are not reached",
        "Look at the monitors' addresses in the plugin's ConfigMap, and at the network between its "
        "pods and them.",
        template("ceph -s"),
    ),
    _Known(
        re.compile(r"ret=-22\b"),
        "the user's key or the Ceph configuration is malformed",
        "Look at the secret's userKey and at the plugin's ceph.conf.",
    ),
    _Known(
        re.compile(r"missing configuration for cluster ID \"?(?P<name>[^\" ]+)"),
        "the plugin's ConfigMap has no cluster {name}",
        "Add that clusterID with its monitors to the ConfigMap ceph-csi-config, or make the class "
        "anew with a clusterID that is there.",
        template("kubectl get configmap -A --field-selector metadata.name=ceph-csi-config -o yaml"),
    ),
    _Known(
        re.compile(r"pool not found|ret=-2\b"),
        "the pool that its class names does not exist",
        "Create the pool, or make the class anew with one that exists.",
        template("ceph osd pool ls"),
    ),
    _Known(
        # validateImageFeatures, internal/rbd/rbd_util.go@52fcb7b
        re.compile(r"feature (?P<name>[\w-]+) requires rbd-nbd for mounter"),
        "its class asks for the image feature {name}, which ceph-csi leaves to rbd-nbd",
        "Create the class again with mounter: rbd-nbd, or without that feature in imageFeatures: "
        "a class's parameters cannot be changed.",
    ),
    _Known(
        _NO_TOPOLOGY,
        "external-provisioner expects topology labels, and the node plugin on {node} reports none",
        "If csi-rbdplugin is not registered on {node}, run it there. If every node reaches the "
        "same pools, start csi-provisioner with --feature-gates=Topology=false; otherwise start "
        "csi-rbdplugin with --domainlabels (ceph-csi#4777).",
        template("kubectl get csinode", "{node}", options=_YAML),
    ),
    _Known(
        _NO_NODE,
        "the driver's node plugin is not registered on the nodes that are asked for",
        "Have the driver's node plugin (csi-rbdplugin) run there; it then registers by itself.",
        template("kubectl get csinodes"),
    ),
    _Known(
        # ceph-csi counts snapshots and clones of the source (ceph-csi#4069).
        re.compile(r"ResourceExhausted.*?(?P<image>\S+) has (?P<count>\d+) snapshots"),
        "its source {image} has {count} snapshots and clones, which is ceph-csi's limit",
        "Wait while Ceph's manager flattens clones (`ceph rbd task list`), delete snapshots that "
        "are not needed, or raise the driver's --maxsnapshotsonimage.",
        template("ceph rbd task list"),
    ),
    _Known(
        re.compile("ResourceExhausted"),
        "there is no room left where the volume is to be",
        "Make room, or add capacity.",
        template("ceph df"),
    ),
)


def _fails(case: Case, claim: Claim, found: StorageClass, event: KubeEvent) -> Finding:
    error = _error_of(event)
    counted = f"{event.count} times, last at {event.last_seen}"
    begun = event.first_seen or claim.created_at
    young = weight(case, claim.created_at)
    if "claim Selector is not supported" in error:
        return finding(
            "RBD620",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} selects its PV by labels, and {found.provisioner} makes none for "
            "such claims.",
            evidence=(quoted(event), counted, *_selector(claim)),
            commands=(describe_claim(claim),),
            heals=binder(case, f"a PV of storage class {found.name} carries the labels"),
            severity=young,
        )
    if "multi node access modes are only supported on rbd" in error:
        return finding(
            "RBD621",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} asks for a file system that several nodes write to; RBD has none.",
            evidence=(quoted(event), f"access modes {', '.join(claim.access_modes)}", counted),
            commands=(describe_claim(claim),),
            severity=young,
        )
    if _HANGS.search(error) and claim.has_data_source and not is_over(GRACE, begun, case):
        return _under_way(case, claim, found, begun)
    if _HANGS.search(error):
        return finding(
            "RBD619",
            f"pvc {claim.ref}",
            f"{found.provisioner} has begun to make the volume of claim {claim.ref} and gets no "
            "end of it: it waits for Ceph.",
            evidence=(quoted(event), counted),
            commands=(command("ceph -s"), *look_for(case, found.provisioner)),
        )
    for known in _KNOWN:
        groups = known.text.search(error)
        if groups is not None:
            names = groups.groupdict()
            return finding(
                "RBD607",
                f"pvc {claim.ref}",
                f"{found.provisioner} cannot make the volume of claim {claim.ref}: "
                f"{known.means.format(**names)}.",
                evidence=(quoted(event), counted),
                remedy=known.remedy.format(**names),
                commands=filled((known.command,) if known.command else (), names),
                severity=young,
            )
    return finding(
        "RBD607",
        f"pvc {claim.ref}",
        f"{found.provisioner} cannot make the volume of claim {claim.ref}: {error}",
        evidence=(quoted(event), counted),
        commands=(describe_claim(claim), *look_for(case, found.provisioner)),
        severity=young,
    )


def _error_of(event: KubeEvent) -> str:
    text = words(event)
    found = _ERROR.search(text)
    return text if found is None else found["error"]


def _selector(claim: Claim) -> tuple[str, ...]:
    asked = ", ".join(str(each) for each in claim.selector or ())
    return (f"selector {asked}",) if asked else ()


# --------------------------------------------------------------------------------------------------
# A node that was chosen, and cannot be had
# --------------------------------------------------------------------------------------------------


def _stuck(
    case: Case, claim: Claim, failed: KubeEvent | None, found: StorageClass
) -> Finding | None:
    """RBD622: the annotation stays whatever becomes of the node, and binds the scheduler too."""
    if claim.selected_node is None:
        return None
    node = node_named(claim.selected_node, case.snapshot)
    lacks = _lacks_driver(case, claim.selected_node, found.provisioner)
    if node is None:
        why = "there is no such node"
        heals = Heals(
            by=f"{PROVISIONER} 5 and older",
            once="it runs and tries",
            within_s=RETRY_S,
            note="version 6 takes the choice back for drivers with topology only",
        )
    elif lacks and failed is not None and _lacks_topology(failed):
        why = f"{found.provisioner} is not registered there"
        once = f"{found.provisioner} registers on {claim.selected_node}"
        heals = Heals(by=PROVISIONER, once=once, within_s=RETRY_S)
    else:
        return None
    users = live_users(case, claim)
    waiting = f"; {', '.join(str(each.ref) for each in users)} can go nowhere else" if users else ""
    alone = not users and users_seen(case, claim)
    return finding(
        "RBD622",
        f"pvc {claim.ref}",
        f"The volume of claim {claim.ref} is to be made for node {claim.selected_node}, and {why}"
        f"{waiting}.",
        evidence=(
            f"volume.kubernetes.io/selected-node: {claim.selected_node}",
            *(("no pod waits for the claim",) if alone else ()),
            *last_words(case, claim),
        ),
        commands=(annotate_claim(claim, "volume.kubernetes.io/selected-node-"),),
        heals=heals,
    )


def _lacks_topology(event: KubeEvent) -> bool:
    return any(known.search(event.message) for known in (_NO_TOPOLOGY, _NO_NODE))


def _lacks_driver(case: Case, node: str, driver: str) -> bool:
    kube = case.snapshot.kubernetes
    found = () if kube is None else observed_of(kube.csi_nodes)
    return any(each.node_name == node and driver not in each.drivers for each in found)


# --------------------------------------------------------------------------------------------------
# It is silent
# --------------------------------------------------------------------------------------------------


def said_too_old(case: Case, claim: Claim) -> Finding | None:
    """RBD608, should its error have come into an event: mostly it stands in a log alone."""
    event = next((each for each in case.use.events if _SELF_LINK in each.message), None)
    if event is None:
        return None
    return _too_old(claim, "a provisioner", (quoted(event),), ())


def _too_old(
    claim: Claim, who: str, evidence: tuple[str, ...], commands: tuple[Command, ...]
) -> Finding:
    return finding(
        "RBD608",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for {who} that is too old for this cluster: it asks for the "
        "claim's selfLink, and Kubernetes gives none since 1.20.",
        evidence=evidence,
        commands=(*commands, describe_claim(claim)),
    )


def _silent(
    case: Case, claim: Claim, found: StorageClass, asked: str | None, *, begun: bool
) -> Finding:
    """RBD606, RBD608, RBD617, RBD618: what shows that the provisioner is not there, or is."""
    name = _asked(claim, found)
    pods, lease = _pods_of(case, name), _lease_of(case, name)
    old = _outdated(case, pods)
    if old is not None:
        pod, image = old
        evidence = (f"pod {pod.ref} runs {image}", *last_words(case, claim))
        return _too_old(claim, f"provisioner {name}", evidence, (_log_of(pod),))
    waits = f"Claim {claim.ref} waits for {name} to make its volume, for "
    waits += spoken(since(asked, case))
    seen = signs_of(case, name)
    # A lease may be left from before leader election was turned off: a pod that is ready counts.
    if not any(each.ready for each in pods) and (pods or lapsed(lease, case)):
        return finding(
            "RBD618",
            f"pvc {claim.ref}",
            f"{waits}, and that does not run.",
            evidence=(*seen, *last_words(case, claim)),
            commands=_look_at(pods, lease),
        )
    if lease is None and not pods and _is_nowhere(case, name):
        return finding(
            "RBD617",
            f"pvc {claim.ref}",
            f"{waits}, and nothing in this cluster goes by that name.{_alike(case, name)}",
            evidence=(
                f"storage class {found.name}: {name}",
                f"no CSIDriver {name}, no lease of such a name, no pod that is known to serve it",
                *last_words(case, claim),
            ),
            commands=(
                kubectl("get csidrivers"),
                kubectl("get storageclass", found.name, options=_YAML),
            ),
        )
    said = ": it has begun, and not ended." if begun else ", and that has said nothing."
    differs = claim.provisioner not in (None, name)
    return finding(
        "RBD606",
        f"pvc {claim.ref}",
        f"{waits}{said}",
        evidence=(
            *seen,
            *((f"the claim was handed to {claim.provisioner}",) if differs else ()),
            *last_words(case, claim),
        ),
        commands=(*look_for(case, name), describe_claim(claim)),
    )


def _asked(claim: Claim, found: StorageClass) -> str:
    """Name who is to make it: a CSI driver that has taken over from an in-tree plugin as well."""
    if found.provisioner.startswith(_IN_TREE) and claim.provisioner is not None:
        return claim.provisioner
    return found.provisioner


def _pods_of(case: Case, provisioner: str) -> tuple[DriverPod, ...]:
    kube = case.snapshot.kubernetes
    found = () if kube is None else observed_of(kube.driver_pods)
    lease = _lease_of(case, provisioner)
    leader = None if lease is None else (lease.namespace, lease.holder)
    return tuple(
        each
        for each in found
        if provisioner in _served(each) or (each.ref.namespace, each.ref.name) == leader
    )


def _served(pod: DriverPod) -> tuple[str, ...]:
    if pod.serves:
        return pod.serves
    image, name = _OLD_RBD
    return (name,) if any(image in each for each in pod.images) else ()


def _lease_of(case: Case, provisioner: str) -> Lease | None:
    """Give the newest lease of a provisioner."""
    names = lease_names(provisioner)
    kube = case.snapshot.kubernetes
    leases = () if kube is None else observed_of(kube.leases)
    found = [each for each in leases if each.name in names]
    return max(found, key=lambda each: (each.renewed_at or "", each.namespace), default=None)


def _outdated(case: Case, pods: tuple[DriverPod, ...]) -> tuple[DriverPod, str] | None:
    version = server_version(case)
    if version is not None and version < _WITHOUT_SELF_LINK:
        return None
    return next(
        ((pod, image) for pod in pods for image in pod.images if _NEEDS_SELF_LINK.search(image)),
        None,
    )


def _is_nowhere(case: Case, provisioner: str) -> bool:
    """Tell whether everything was looked at that would show a provisioner."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.leases, NotObserved) or provisioner.startswith(_IN_TREE):
        return False
    if isinstance(kube.drivers, NotObserved) or isinstance(kube.driver_pods, NotObserved):
        return False
    return provisioner not in kube.drivers


def _alike(case: Case, provisioner: str) -> str:
    """Name the drivers that may be meant: Rook calls ceph-csi's by the operator's namespace."""
    kube = case.snapshot.kubernetes
    drivers = () if kube is None else observed_of(kube.drivers)
    like = sorted(
        each for each in drivers if each.endswith(provisioner) or provisioner.endswith(each)
    )
    if like:
        return f" There is {', '.join(like)}: is that what the class should name?"
    return ""


def _spoken_pods(pods: tuple[DriverPod, ...]) -> tuple[str, ...]:
    return tuple(
        f"pod {each.ref} is {each.phase}{'' if each.ready else ', not ready'}" for each in pods
    )


def _look_at(pods: tuple[DriverPod, ...], lease: Lease | None) -> tuple[Command, ...]:
    down = [each for each in pods if not each.ready]
    found = [kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace) for pod in down[:2]]
    if lease is not None:
        found.append(kubectl("get pods", namespace=lease.namespace))
    return tuple(found)


def signs_of(case: Case, provisioner: str) -> tuple[str, ...]:
    """Tell what shows that a provisioner is there, or is not."""
    lease = _lease_of(case, provisioner)
    pods = _spoken_pods(_pods_of(case, provisioner))
    return (*pods, *((spoken_lease(lease, case),) if lease else ()))


def look_for(case: Case, provisioner: str) -> tuple[Command, ...]:
    """Show what the provisioner that works says, where it is known which one that is."""
    lease = _lease_of(case, provisioner)
    if lease is not None and lease.holder:
        options = ("-c", "csi-provisioner", "--tail=50")
        return (kubectl("logs", lease.holder, namespace=lease.namespace, options=options),)
    logs = [_log_of(pod) for pod in _pods_of(case, provisioner)[:1]]
    return tuple(logs) or (LIST_CONTROLLERS,)


def _log_of(pod: DriverPod) -> Command:
    options = ("--all-containers", "--tail=50")
    return kubectl("logs", pod.ref.name, namespace=pod.ref.namespace, options=options)
