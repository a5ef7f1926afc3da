#!/bin/bash
# Ceph 20.2.4: an image that is primary in both mirrored clusters is healthy for `rbd mirror pool status`.
#
# The image of one cluster is copied to another one. It is promoted there with --force while it is still primary and
# writable in the first one, and each side is written. rbd-mirror knows the role of both sides, and reports "health: OK"
# and "image health: OK"; `ceph health detail` has no check of it. The split is reported only after one side is demoted,
# when one side's writes can only be discarded. Expected: a warning as soon as two sides are primary.
#
# Seen with ceph-mon, ceph-mgr, ceph-osd and rbd-mirror 20.2.4 of Debian forky on loopback, snapshot mode, one daemon on
# the side that copies. As root; 600 MB are fetched.
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
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian forky main' >"$apt/sources.list"
options=(-qq -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
  -o "Dir::Cache=$apt" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends --download-only ceph-mon ceph-osd ceph-mgr ceph-common rbd-mirror >/dev/null
for name in bin sbin lib lib64; do mkdir -p "$root/usr/$name" && ln -s "usr/$name" "$root/$name"; done
for package in "$apt"/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink; done
rm -rf "$apt"

export PATH=/usr/bin:/bin:/usr/sbin:/sbin
for device in null zero random urandom; do mkdir -p "$root/dev" && { [ -e "$root/dev/$device" ] || cp -a "/dev/$device" "$root/dev/"; }; done
mkdir -p "$root"/{proc,tmp,var/run/ceph,var/lib/ceph,var/log/ceph}

# Runs a program as the administrator of a cluster.
of() { local name=$1; shift; CEPH_CONF=/$name/ceph.conf chroot "$root" "$@"; }

# Starts a cluster with one monitor, manager and OSD, and a pool.
start() {
  local name=$1 port=$2 fsid=$3 osd=$4
  mkdir -p "$root/$name"/{mon,osd,mgr}
  cat >"$root/$name/ceph.conf" <<CONF
[global]
fsid = $fsid
mon host = v1:127.0.0.1:$port
osd objectstore = memstore
osd pool default size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
public addr = 127.0.0.1
ms bind msgr2 = false
auth allowed ciphers = aes,aes256k
mon data = /$name/mon
osd data = /$name/osd
mgr data = /$name/mgr
keyring = /$name/keyring
log file = /dev/null
run dir = /$name
CONF
  of "$name" ceph-authtool --create-keyring "/$name/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  of "$name" ceph-authtool "/$name/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >/dev/null
  of "$name" monmaptool --create --addv a "[v1:127.0.0.1:$port]" --fsid "$fsid" "/$name/monmap" >/dev/null
  of "$name" ceph-mon --mkfs -i a --monmap "/$name/monmap" >/dev/null 2>&1
  CEPH_CONF=/$name/ceph.conf chroot "$root" ceph-mon -f -i a >"$temporary/$name-mon.log" 2>&1 &
  daemons+=($!)
  of "$name" ceph osd new "$osd" >/dev/null
  of "$name" ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' -o "/$name/osd/keyring"
  of "$name" ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "/$name/mgr/keyring"
  of "$name" ceph-osd --mkfs -i 0 --osd-uuid "$osd" --keyring "/$name/osd/keyring" >/dev/null 2>&1
  CEPH_CONF=/$name/ceph.conf chroot "$root" ceph-osd -f -i 0 --keyring "/$name/osd/keyring" >"$temporary/$name-osd.log" 2>&1 &
  daemons+=($!)
  CEPH_CONF=/$name/ceph.conf chroot "$root" ceph-mgr -f -i x --keyring "/$name/mgr/keyring" >"$temporary/$name-mgr.log" 2>&1 &
  daemons+=($!)
  of "$name" ceph osd pool create k8s 8 >/dev/null 2>&1
  of "$name" rbd pool init k8s
  of "$name" rbd mirror pool enable k8s image
}
start one 36791 5a1c2d3e-4f50-4a7e-9b8e-1f0c3b8e6d2a 6d2a1f0c-3b8e-4a7e-9b8e-5a1c2d3e4f50
start two 36792 5a1c2d3e-4f50-4a7e-9b8e-1f0c3b8e6d2b 6d2a1f0c-3b8e-4a7e-9b8e-5a1c2d3e4f51

of one rbd mirror pool peer bootstrap create --site-name one k8s >"$root/two/token" 2>/dev/null
of two rbd mirror pool peer bootstrap import --site-name two --direction rx-only k8s /two/token 2>/dev/null
CEPH_CONF=/two/ceph.conf chroot "$root" rbd-mirror -f -n client.admin >"$temporary/mirror.log" 2>&1 &
daemons+=($!)
of one rbd create --size 8M --image-feature layering,exclusive-lock k8s/image
of one rbd mirror image enable k8s/image snapshot >/dev/null

# Waits until the status of a side contains a text.
wait_for() {
  for _ in {1..300}; do of "$1" rbd mirror image status k8s/image 2>/dev/null | grep -q "$2" && return; sleep 1; done
  echo "$1 did not report $2"; exit 1
}
wait_for two 'state: *up+replaying'
of two rbd mirror image promote --force k8s/image >/dev/null 2>&1
wait_for two 'description: *local image is primary'
for name in one two; do of "$name" rbd bench --io-type write --io-total 4K --io-size 4K k8s/image >/dev/null 2>&1; done
sleep 5
seen=$(
  for name in one two; do echo "$name: $(of "$name" rbd info k8s/image | grep -o 'mirroring primary: .*')"; done
  of two rbd mirror pool status k8s | grep health
  echo "checks about mirroring: $(of two ceph health detail --format json | grep -ci '"[A-Z_]*MIRROR[A-Z_]*":' || :)"
)
expected='one: mirroring primary: true
two: mirroring primary: true
health: OK
daemon health: OK
image health: OK
checks about mirroring: 0'
of two ceph --version | cut -d ' ' -f 3
echo "$seen"
[ "$seen" = "$expected" ] || { echo "Ceph behaves otherwise now; expected:"; echo "$expected"; exit 1; }
