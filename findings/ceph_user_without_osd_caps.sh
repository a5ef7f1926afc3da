#!/bin/bash
# Ceph 18.2.7: a request to an OSD by a user without osd caps gets no answer; Ceph 16.2 refuses it at once.
#
# With Ceph 16.2 the first request fails with EPERM, which names the cause. With Ceph 18.2 the same request waits,
# without an error and without a line of the client: the same picture as an OSD that is down. A user with
# "osd caps = allow r" gets an answer from the same OSD at once. Expected: the refusal of 16.2 in both.
#
# Seen with librados, ceph-mon and ceph-osd 16.2.15 of Debian 12 and 18.2.7 of Debian 13 on loopback: exit code 1
# ("Operation not permitted") within a second there, no answer within 20 s here. As root; 300 MB are fetched.
set -euo pipefail

temporary=$(mktemp -d)
daemons=()
stop() {
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || :; done
  daemons=()
}
trap 'stop; rm -rf "$temporary"' EXIT
mirror=http://deb.debian.org/debian

# Unpacks the packages of a suite, with all that they need, into a root.
unpack() {
  local apt=$temporary/apt-$1 root=$temporary/$1
  mkdir -p "$apt"/{lists/partial,archives/partial} "$root"
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" >"$apt/sources.list"
  local options=(-qq -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
    -o "Dir::Cache=$apt" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --no-install-recommends --download-only ceph-mon ceph-osd ceph-common >/dev/null
  [ "$1" = bookworm ] || for name in bin sbin lib lib64; do
    mkdir -p "$root/usr/$name" && ln -s "usr/$name" "$root/$name"
  done
  for package in "$apt"/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink; done
  rm -rf "$apt"
}

export PATH=/usr/bin:/bin:/usr/sbin:/sbin
in_root() { chroot "$root" "$@"; }

# Prints the version, and what a user without osd caps gets.
ask() {
  local root=$temporary/$1 port=36789
  mkdir -p "$root"/{mon,osd,proc,dev,etc/ceph,var/run/ceph,var/lib/ceph,var/log/ceph}
  for device in null zero random urandom; do [ -e "$root/dev/$device" ] || cp -a "/dev/$device" "$root/dev/"; done
  cat >"$root/etc/ceph/ceph.conf" <<CONF
[global]
fsid = 5a1c2d3e-4f50-4a7e-9b8e-1f0c3b8e6d2a
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
  in_root monmaptool --create --addv a "[v1:127.0.0.1:$port]" --fsid 5a1c2d3e-4f50-4a7e-9b8e-1f0c3b8e6d2a /monmap >/dev/null
  in_root ceph-mon --mkfs -i a --monmap /monmap >/dev/null 2>&1
  chroot "$root" ceph-mon -f -i a >"$temporary/mon.log" 2>&1 &
  daemons+=($!)
  in_root ceph osd new 6d2a1f0c-3b8e-4a7e-9b8e-5a1c2d3e4f50 >/dev/null
  in_root ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' -o /osd/keyring
  in_root ceph-osd --mkfs -i 0 --osd-uuid 6d2a1f0c-3b8e-4a7e-9b8e-5a1c2d3e4f50 --keyring /osd/keyring >/dev/null 2>&1
  chroot "$root" ceph-osd -f -i 0 --keyring /osd/keyring >"$temporary/osd.log" 2>&1 &
  daemons+=($!)
  in_root ceph osd pool create k8s 8 >/dev/null 2>&1
  in_root ceph auth get-or-create client.reader mon 'allow r' osd 'allow r' -o /etc/ceph/with >/dev/null
  in_root ceph auth get-or-create client.none mon 'allow r' -o /etc/ceph/without >/dev/null
  # The OSD is up: a user with caps gets an answer.
  in_root rados -n client.reader --keyring /etc/ceph/with -p k8s ls >/dev/null
  local code=0
  timeout 20 chroot "$root" /usr/bin/rados -n client.none --keyring /etc/ceph/without -p k8s ls >/dev/null 2>"$temporary/said" || code=$?
  echo "$(in_root ceph --version | cut -d ' ' -f 3): exit $code, $(grep -c 'Operation not permitted' "$temporary/said") refused"
  stop
}

for suite in bookworm trixie; do unpack "$suite"; done
for suite in bookworm trixie; do ask "$suite" >>"$temporary/seen"; done
seen=$(cat "$temporary/seen")
expected='16.2.15: exit 1, 1 refused
18.2.7: exit 124, 0 refused'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "Ceph behaves otherwise now; expected:"; echo "$expected"; exit 1; }
