# Run once by init, in the guest's root, in place of udev, and of systemd if it is not used.
# Run by busybox's shell, whose commands are built in: any other exec costs 0.1 s here.
# shellcheck shell=sh
set -eu
. /etc/lab/environment

[ -d /run/systemd/system ] || mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lab
exec >/run/lab/boot.log 2>&1
trap 'code=$?; [ $code = 0 ] || { echo "failed: exit $code"; cat /run/lab/boot.log >/dev/console; : >/run/lab/failed; }' EXIT
set -x

if [ "$LAB_MACHINE" = uml ]; then
  ip link set vec0 name eth0
  ip link set vec1 name eth1
else
  /sbin/modprobe virtio_net
fi
hostname "$LAB_NAME"
ip link set lo up
ip addr add "$LAB_CONTROL_ADDRESS/24" dev eth1
ip link set eth1 up
# Without duplicate address detection, during which a new IPv6 address cannot be used.
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
for address in $LAB_ADDRESSES; do
  ip addr add "$address" dev eth0
done
ip link set eth0 up

if [ ! -d /run/systemd/system ]; then
  # What devtmpfs has not, and udev is not there to make. cryptsetup and bash need them.
  ln -s /proc/self/fd /dev/fd
  ln -s /proc/self/fd/0 /dev/stdin
  ln -s /proc/self/fd/1 /dev/stdout
  ln -s /proc/self/fd/2 /dev/stderr
  mkdir /dev/pts /dev/shm /dev/mqueue
  mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
  mount -t tmpfs -o nosuid,nodev shm /dev/shm
  mount -t mqueue mqueue /dev/mqueue
  mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
  mount -t debugfs debugfs /sys/kernel/debug
fi
mount -t tmpfs -o mode=1777 tmp /tmp
# The host's files below /tmp and /run are hidden now; this restores the lab's own files.
for path in $LAB_VISIBLE; do
  case $path in
    /tmp/* | /run/*)
      mkdir -p "$path"
      mount --bind "/etc/lab/host$path" "$path"
      ;;
  esac
  # Other users than root run rbdagent here, in group 0 too, and root's home is 0700 on the host.
  above=${path%/*}
  while [ -n "$above" ]; do
    chmod a+x "$above"
    above=${above%/*}
  done
done

# Without a disk the same directories are in memory.
mkdir -p /var/lib/lab /var/lib/kubelet /var/lib/containerd /var/log/lab
# In the order of the recorded nodes: vda, dm-0 and rbd0 then get the major numbers 254, 253, 252.
[ "$LAB_MACHINE" = uml ] || /sbin/modprobe virtio_blk
# With systemd, the units load what they need.
[ -d /run/systemd/system ] || /sbin/modprobe -a dm_crypt rbd ext4 loop nbd
if [ "$LAB_DISK" = yes ]; then
  # Neither kubelet nor containerd syncs all it writes: pulling the plug in the first half minute
  # would leave empty files (kubelet.crt: kubelet never starts again). So write back at once.
  mount -t ext4 -o nodelalloc,commit=1 "$LAB_DISK_DEVICE" /var/lib/lab
  mkdir -p /var/lib/lab/kubelet /var/lib/lab/containerd /var/lib/lab/log
  mount --bind /var/lib/lab/kubelet /var/lib/kubelet
  mount --bind /var/lib/lab/containerd /var/lib/containerd
  mount --bind /var/lib/lab/log /var/log/lab
fi
mount --make-rshared /

for script in /etc/lab/start.d/*; do
  [ ! -e "$script" ] || . "$script"
done
: >/run/lab/ready
