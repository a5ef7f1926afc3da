#!/bin/busybox sh
# First program of a node VM: its root becomes the host's, read-only below a layer in memory, or
# on a disk if systemd follows.
set -e
/bin/busybox mkdir -p /proc /sys /dev /host /layer /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
  /bin/busybox insmod "/modules/$module"
done </modules/order
if /bin/busybox grep -qw lab.uml /proc/cmdline; then
  disk=/dev/ubda
  /bin/busybox mount -t hostfs -o ro none /host
else
  disk=/dev/vda
  /bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
fi
systemd=$(/bin/busybox grep -ow lab.systemd /proc/cmdline || :)
if [ -n "$systemd" ]; then
  /bin/busybox mount -t ext4 "$disk" /layer
else
  /bin/busybox mount -t tmpfs layer /layer
fi
/bin/busybox mkdir -p /layer/upper /layer/work
/bin/busybox mount -t overlay \
  -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
if [ -n "$systemd" ] && [ ! -e /layer/begun ]; then
  # Nothing of what the host runs, enables or generates runs here; its journal is its own.
  cd /new
  /bin/busybox rm -rf etc/systemd/system/*.wants lib/systemd/system-generators var/log/journal/* \
    lib/systemd/system/multi-user.target.wants lib/systemd/system/timers.target.wants
  /bin/busybox mkdir -p etc/systemd/system/multi-user.target.wants var/log/journal
  for unit in lab-boot lab-control; do
    /bin/busybox ln -s "../$unit.service" etc/systemd/system/multi-user.target.wants/
  done
  # On a machine that is a container, systemd would take itself for one, and not sync at its end.
  /bin/busybox rm -f .dockerenv
  # It would empty the host's /tmp, file by file.
  /bin/busybox ln -s /dev/null etc/systemd/system/systemd-tmpfiles-setup.service
  cd /
  : >/layer/begun
fi
/bin/busybox cp -a /given/. /new/
# Loaded here: units that load a module finish before any of our units begins.
modules=$(. /new/etc/lab/environment && echo "$LAB_MODULES")
/bin/busybox mkdir -p /new/lib/modules
/bin/busybox mount --bind "/new$modules" /new/lib/modules
/bin/busybox mkdir -p /new/etc/lab/host
/bin/busybox mount --move /host /new/etc/lab/host
for directory in proc sys dev; do
  /bin/busybox mount --move "/$directory" "/new/$directory"
done
if [ -n "$systemd" ]; then
  exec /bin/busybox switch_root /new /lib/systemd/systemd
fi
exec /bin/busybox switch_root /new /bin/busybox init
