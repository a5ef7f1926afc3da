#!/bin/bash
# Ceph 18.2.7: a snapshot that is removed while a client has it open reads as zeros, or as the image is now; no error.
#
# A client opens a snapshot read-only, which sets no watch, and reads. "rbd snap rm" then succeeds. The same handle
# reads on without an error: an object that was written since the snapshot reads as zeros, one that was not reads as
# the image has it now, also what is written later. Expected: ENOENT, or a refusal to remove what is open. krbd does
# the same with a mapped snapshot (seen on 7.2), and no line of the kernel reports it.
#
# Seen with librbd, librados, ceph-mon and ceph-osd 18.2.7 of Debian 13 on loopback. As root; 300 MB are fetched.
set -euo pipefail

temporary=$(mktemp -d)
root=$temporary/root
daemons=()
stop() {
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || :; done
}
trap 'stop; rm -rf "$temporary"' EXIT

apt=$temporary/apt
mkdir -p "$apt"/{lists/partial,archives/partial} "$root"
: >"$apt/status"
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' >"$apt/sources.list"
options=(-qq -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
  -o "Dir::Cache=$apt" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends --download-only ceph-mon ceph-osd ceph-common python3-rbd python3-rados >/dev/null
for name in bin sbin lib lib64; do mkdir -p "$root/usr/$name" && ln -s "usr/$name" "$root/$name"; done
for package in "$apt"/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink; done
rm -rf "$apt"

export PATH=/usr/bin:/bin:/usr/sbin:/sbin
in_root() { chroot "$root" "$@"; }
port=36790 fsid=5a1c2d3e-4f50-4a7e-9b8e-1f0c3b8e6d2a osd=6d2a1f0c-3b8e-4a7e-9b8e-5a1c2d3e4f50
mkdir -p "$root"/{mon,osd,proc,dev,etc/ceph,var/run/ceph,var/lib/ceph,var/log/ceph}
for device in null zero random urandom; do [ -e "$root/dev/$device" ] || cp -a "/dev/$device" "$root/dev/"; done
cat >"$root/etc/ceph/ceph.conf" <<CONF
[global]
fsid = $fsid
mon host = v1:127.0.0.1:$port
osd objectstore = memstore
osd pool default size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
public addr = 127.0.0.1
ms bind msgr2 = false
mon data = /mon
osd data = /osd
keyring = /etc/ceph/keyring
log file = /dev/null
run dir = /var/run/ceph
CONF
in_root ceph-authtool --create-keyring /etc/ceph/keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
in_root ceph-authtool /etc/ceph/keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' >/dev/null
in_root monmaptool --create --addv a "[v1:127.0.0.1:$port]" --fsid "$fsid" /monmap >/dev/null
in_root ceph-mon --mkfs -i a --monmap /monmap >/dev/null 2>&1
chroot "$root" ceph-mon -f -i a >"$temporary/mon.log" 2>&1 &
daemons+=($!)
in_root ceph osd new "$osd" >/dev/null
in_root ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' -o /osd/keyring
in_root ceph-osd --mkfs -i 0 --osd-uuid "$osd" --keyring /osd/keyring >/dev/null 2>&1
chroot "$root" ceph-osd -f -i 0 --keyring /osd/keyring >"$temporary/osd.log" 2>&1 &
daemons+=($!)
in_root ceph osd pool create k8s 8 >/dev/null 2>&1
in_root rbd pool init k8s

cat >"$root/read.py" <<'PYTHON'
import rados, rbd

cluster = rados.Rados(conffile="/etc/ceph/ceph.conf")
cluster.connect()
pool = cluster.open_ioctx("k8s")
rbd.RBD().create(pool, "image", 8 << 20, features=rbd.RBD_FEATURE_LAYERING, old_format=False)
image = rbd.Image(pool, "image")
object_size = 4 << 20


def write(text, number):
    image.write(text, number * object_size)


def read(handle, number):
    return handle.read(number * object_size, 5).replace(b"\0", b"0").decode()


write(b"first", 0), write(b"first", 1)
image.create_snap("daily")
# Only a cache of librbd could answer without the OSD.
cluster.conf_set("rbd_cache", "false")
other = rbd.Image(pool, "image", snapshot="daily", read_only=True)
write(b"newer", 0)
image.flush()
print("open:         ", read(other, 0), read(other, 1))
image.remove_snap("daily")
print("removed:      ", read(other, 0), read(other, 1))
write(b"later", 1)
image.flush()
print("written since:", read(other, 0), read(other, 1))
PYTHON
seen=$(in_root python3 /read.py)
expected='open:          first first
removed:       00000 first
written since: 00000 later'
in_root ceph --version | cut -d ' ' -f 3
echo "$seen"
[ "$seen" = "$expected" ] || { echo "Ceph behaves otherwise now; expected:"; echo "$expected"; exit 1; }
