#!/bin/bash
# Kubernetes 1.36 (apimachinery 0.36.3): after managedFields are cleared, no update is recorded there again.
#
# managedFields shows who set each field of an object, and when. A patch with a list of one empty entry
# clears it (server-side-apply in Kubernetes' documentation). Expected: that the next update is recorded, as
# after a creation. But an object without entries is not tracked: entries come back by a creation, by
# server-side apply, or by an update that brings an entry of its own. An update that clears and changes at
# the same time is not recorded either.
#
# rbdagent dates the reports of its agents by these times. It cleared the entries of its object at each
# write, so the time of the last write was never shown.
#
# Seen with apimachinery 0.36.3 and Go 1.26.8, by the field manager of the API server, and by an API server
# 1.36.3.
set -euo pipefail

temporary=$(mktemp -d)
trap 'chmod -R u+w "$temporary"; rm -rf "$temporary"' EXIT
export GOPATH=$temporary/go GOCACHE=$temporary/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
mkdir "$temporary/ask" && cd "$temporary/ask"
go mod init ask 2>/dev/null
go get k8s.io/apimachinery@v0.36.3 2>/dev/null

cat >main.go <<'GO'
package main

import (
	"fmt"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
)

var (
	manager = managedfieldstest.NewFakeFieldManager(managedfields.NewDeducedTypeConverter(),
		schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	live = object("", "", nil)
)

func object(uid, color string, entries []meta.ManagedFieldsEntry) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"color": color},
	}}
	made.SetName("example")
	if uid != "" {
		made.SetUID("1")
	}
	made.SetManagedFields(entries)
	return made
}

func update(what, uid, color string, entries []meta.ManagedFieldsEntry) {
	after, err := manager.Update(live, object(uid, color, entries), "writer")
	if err != nil {
		panic(err)
	}
	live = after.(runtime.Unstructured).(*unstructured.Unstructured)
	live.SetUID("1")
	fmt.Println(what, len(live.GetManagedFields()))
}

func main() {
	empty := []meta.ManagedFieldsEntry{{}}
	own := []meta.ManagedFieldsEntry{{
		Manager: "writer", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &meta.FieldsV1{Raw: []byte(`{"f:data":{"f:color":{}}}`)},
	}}
	update("created:", "", "red", nil)
	update("changed:", "1", "green", nil)
	update("changed and cleared:", "1", "blue", empty)
	update("changed later:", "1", "red", nil)
	update("changed with an entry:", "1", "green", own)
	update("changed later:", "1", "blue", nil)
}
GO
go build -o ask .

seen=$(./ask)
expected='created: 1
changed: 1
changed and cleared: 0
changed later: 0
changed with an entry: 1
changed later: 1'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "Kubernetes behaves otherwise now; expected:"; echo "$expected"; exit 1; }
