"""List an image's watchers as ceph-csi does: one long-lived client, a short read-write open."""

import json
import sys

import rados
import rbd

settings = json.loads(sys.stdin.readline())
cluster = rados.Rados(
    rados_id=settings["user"],
    conf={
        "mon_host": settings["monitors"],
        "key": settings["key"],
        "admin_socket": "",
        "log_file": "",
    },
)
cluster.connect()
print(json.dumps({"client": cluster.get_instance_id()}), flush=True)
for line in sys.stdin:
    image = json.loads(line)
    try:
        with cluster.open_ioctx(image["pool"]) as context:
            context.set_namespace(image["namespace"])
            with rbd.Image(context, image["name"]) as opened:
                others = [
                    each["addr"]
                    for each in opened.watchers_list()
                    if each["id"] != cluster.get_instance_id()
                ]
        answer: dict[str, object] = {"watchers": others}
    except (rados.Error, rbd.Error) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
