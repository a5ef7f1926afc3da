"""Answer queries of ceph-csi to librados and librbd: one long-lived client, short read-write opens.

Errors are in the words of go-ceph and ceph-csi (internal/util/conn_pool.go,
internal/rbd/errors.go).
"""

import json
import os
import sys

import rados
import rbd


def words(error: Exception, library: str) -> str:
    """Return an error as go-ceph prints it."""
    number = getattr(error, "errno", None) or 0
    return f"{library}: ret=-{abs(number)}, {os.strerror(abs(number))}"


settings = json.loads(sys.stdin.readline())
cluster = rados.Rados(
    rados_id=settings["user"],
    conffile="/etc/ceph/ceph.conf",
    conf={
        "mon_host": settings["monitors"],
        "key": settings["key"],
        "admin_socket": "",
        "log_file": "",
    },
)
try:
    cluster.connect()
except rados.Error as error:
    text = f"failed to get connection: connecting failed: {words(error, 'rados')}"
    print(json.dumps({"error": text}), flush=True)
    # Only now: a caller that waits for the program closes unread output.
    sys.stdin.read()
    sys.exit()
print(json.dumps({}), flush=True)


def asked(image: dict[str, str]) -> dict[str, object]:
    """Return the features, the watchers and the mirroring of an image."""
    try:
        context = cluster.open_ioctx(image["pool"])
    except rados.ObjectNotFound as error:
        return {"error": f"Failed as pool not found (internal {words(error, 'rados')})"}
    with context:
        context.set_namespace(image["namespace"])
        try:
            with rbd.Image(context, image["name"]) as opened:
                mirrored = opened.mirror_image_get_info()
                return {
                    "features": opened.features(),
                    "watchers": sum(1 for _ in opened.watchers_list()),
                    "mirrored": mirrored["state"] == rbd.RBD_MIRROR_IMAGE_ENABLED,
                    "primary": bool(mirrored["primary"]),
                }
        except rbd.ImageNotFound as error:
            text = f"RBD image not found: {words(error, 'rbd')}"
            return {"error": f"Failed as image not found (internal {text})"}


for line in sys.stdin:
    try:
        answer = asked(json.loads(line))
    except (rados.Error, rbd.Error) as error:
        library = "rbd" if isinstance(error, rbd.Error) else "rados"
        answer = {"error": words(error, library)}
    print(json.dumps(answer), flush=True)
