#!/bin/bash
# cadvisor 0.56.2: without a line "cpu MHz" in /proc/cpuinfo, kubelet does not start.
#
# kubelet reads the machine by cadvisor's package machine, and ends if that fails. The clock speed is
# information for a page; an architecture without a line for it is in a list in the source. x86-64 is not
# in the list, and a kernel of that architecture need not print the line: User Mode Linux has "model name",
# "mode", "host" and "bogomips". Expected: an unknown speed, as on arm64, where it is 0.
#
# Seen with cadvisor 0.56.2 and Go 1.26.8, on the cpuinfo of User Mode Linux 7.2: an error, and kubelet 1.36.3
# ends with "failed to run Kubelet: could not detect clock speed from output".
set -euo pipefail

temporary=$(mktemp -d)
trap 'chmod -R u+w "$temporary"; rm -rf "$temporary"' EXIT
export GOPATH=$temporary/go GOCACHE=$temporary/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
mkdir "$temporary/ask" && cd "$temporary/ask"
go mod init ask 2>/dev/null
go get github.com/google/cadvisor@v0.56.2 2>/dev/null

cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/google/cadvisor/machine"
)

const withoutSpeed = "processor\t: 0\nvendor_id\t: User Mode Linux\nmodel name\t: UML\nmode\t\t: skas\nbogomips\t: 4894.72\n"

func main() {
	for _, cpuinfo := range []string{withoutSpeed, withoutSpeed + "cpu MHz\t\t: 1000.000\n"} {
		speed, err := machine.GetClockSpeed([]byte(cpuinfo))
		fmt.Println(speed, err != nil)
	}
}
GO
go build -o ask .

# A tmpfs hides /sys: the speed is asked there first, and many virtual machines have none there.
seen=$(unshare --mount --propagation private bash -c 'mount -t tmpfs none /sys && exec ./ask')
expected='0 true
1000000 false'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "cadvisor behaves otherwise now; expected:"; echo "$expected"; exit 1; }
