#!/bin/busybox sh
# First program of a node VM: its root becomes the host's, read-only below a layer in memory.
set -e
/bin/busybox mkdir -p /proc /sys /dev /host /layer /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
  /bin/busybox insmod "/modules/$module"
done </modules/order
/bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
/bin/busybox mount -t tmpfs layer /layer
/bin/busybox mkdir /layer/upper /layer/work
/bin/busybox mount -t overlay \
  -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
/bin/busybox cp -a /given/. /new/
/bin/busybox mkdir -p /new/etc/lab/host
/bin/busybox mount --move /host /new/etc/lab/host
for directory in proc sys dev; do
  /bin/busybox mount --move "/$directory" "/new/$directory"
done
exec /bin/busybox switch_root /new /bin/busybox init
