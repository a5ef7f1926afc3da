#!/bin/bash
# k8s.io/mount-utils 0.36.3: a check of the file system that ends with 8 or 12 is no error, and the mount
# goes on unchecked.
#
# FormatAndMount, which CSI drivers call for a volume, runs `fsck -a` before it mounts. fsck(8) adds up bits:
# 4 is "errors left uncorrected", 8 is "operational error". mount-utils returns an error for the status 4
# alone, and logs every higher one at level info: an e2fsck that is too old for the file system ends with 12
# (4 + 8), one that finds the device in use ends with 8. No event of Kubernetes and no caller ever has the
# text "Get a newer version of e2fsck!". Expected: an error, as for 4.
#
# Seen with k8s.io/mount-utils 0.36.3, Go 1.26.8, and e2fsprogs 1.47.0 on an ext4 with a feature that it does
# not know: e2fsck ends with 12, FormatAndMount returns nil, and mount was called.
set -euo pipefail

temporary=$(mktemp -d)
trap 'chmod -R u+w "$temporary"; rm -rf "$temporary"' EXIT
export GOPATH=$temporary/go GOCACHE=$temporary/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
mkdir "$temporary/ask" "$temporary/bin" && cd "$temporary/ask"
go mod init ask 2>/dev/null
go get k8s.io/mount-utils@v0.36.3 k8s.io/utils/exec 2>/dev/null

# A newer mke2fs makes such a file system: e2fsck knows the compatible features of its own time only.
truncate -s 8M "$temporary/image"
mkfs.ext4 -q "$temporary/image"
debugfs -w -R 'feature FEATURE_C20' "$temporary/image" >/dev/null 2>&1
status=0
e2fsck -a "$temporary/image" >/dev/null 2>&1 || status=$?

# The mount itself is not the question: it needs a loop device.
printf '#!/bin/sh\necho mounted >%s/mounted\n' "$temporary" >"$temporary/bin/mount"
chmod +x "$temporary/bin/mount"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	mount "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

func main() {
	mounter := mount.SafeFormatAndMount{Interface: mount.New(os.Args[3]), Exec: exec.New()}
	err := mounter.FormatAndMount(os.Args[1], os.Args[2], "ext4", nil)
	fmt.Println("FormatAndMount:", err)
}
GO
go build -o ask .
seen=$(PATH=$temporary/bin:$PATH ./ask "$temporary/image" "$temporary/target" "$temporary/bin/mount" 2>/dev/null)
seen="e2fsck: $status
$seen
mount: $(cat "$temporary/mounted" 2>/dev/null || echo 'not called')"
expected='e2fsck: 12
FormatAndMount: <nil>
mount: mounted'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "mount-utils behaves otherwise now; expected:"; echo "$expected"; exit 1; }
