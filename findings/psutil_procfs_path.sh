#!/bin/bash
# psutil 7.2.2: with PROCFS_PATH set to the host's /proc, psutil.Process() is another process.
#
# An agent in a container mounts the host's /proc elsewhere and sets psutil.PROCFS_PATH to it, as psutil's
# documentation suggests for containers. Process() without a pid then still takes os.getpid(), the pid in
# the container's own pid namespace, and reads that number's directory below PROCFS_PATH: on the host,
# another process has that number. Its name, memory and times are returned as the caller's own, without an
# error. Expected: the calling process, or an error.
#
# Seen with Linux 6.18 and psutil 7.2.2: os.getpid() is 1 in the namespace, and Process() is the host's
# process 1: the name differs from that of the caller.
set -euo pipefail

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
python3 -m venv "$temporary/venv"
"$temporary/venv/bin/pip" install --quiet --disable-pip-version-check psutil==7.2.2

cat >"$temporary/who.py" <<'PY'
import os
import sys

import psutil

own = psutil.Process()
before = (own.pid, own.cmdline()[-1:])
psutil.PROCFS_PATH = sys.argv[1]
other = psutil.Process()
print("pid", before[0], "is this script:", before[1] == [sys.argv[-1]])
print("pid", other.pid, "with PROCFS_PATH is this script:", other.cmdline()[-1:] == [sys.argv[-1]])
PY

# A pid namespace of its own, as in a container; the host's /proc stays visible at another path.
seen=$(unshare --mount --pid --fork --propagation private bash -c '
  mkdir "$1/host-proc" && mount --rbind /proc "$1/host-proc" && mount -t proc proc /proc
  exec "$1/venv/bin/python" "$1/who.py" "$1/host-proc" the-caller' bash "$temporary")
expected='pid 1 is this script: True
pid 1 with PROCFS_PATH is this script: False'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "psutil behaves otherwise now; expected:"; echo "$expected"; exit 1; }
