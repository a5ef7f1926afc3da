package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ceph-csi checks ten times, each pause 1.4 times the one before (rbd_util.go, waitForrbdImage).
const (
	inUseLooks  = 10
	inUseFactor = 1.4
)

type node struct {
	csi.UnimplementedNodeServer
	options
	busy           sync.Map
	connections    connections
	kernelFeatures uint64
}

func newNode(o options) *node { return &node{options: o, kernelFeatures: kernelFeatures()} }

// kernelFeatures returns the features of krbd. ceph-csi reads them once, loads the module for that,
// and exits if it cannot (GetKrbdSupportedFeatures).
func kernelFeatures() uint64 {
	const path = "/sys/bus/rbd/supported_features"
	if _, err := os.Stat(path); os.IsNotExist(err) {
		if _, err := run("", "modprobe", "rbd"); err != nil {
			log.Fatalf("modprobe failed (%v)", err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	features, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), 16, 64)
	if err != nil {
		log.Fatal(err)
	}
	return features
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.nodeID}, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	var found []*csi.NodeServiceCapability
	for _, capability := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		found = append(found, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: capability},
		}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: found}, nil
}

// lock takes a volume for one call; a second call at the same time gets ceph-csi's error.
func (n *node) lock(volume string) (unlock func(), err error) {
	if _, taken := n.busy.LoadOrStore(volume, true); taken {
		return nil, status.Errorf(codes.Aborted,
			"an operation with the given Volume ID %s already exists", volume)
	}
	return func() { n.busy.Delete(volume) }, nil
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	if _, known := status.FromError(err); known {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// step runs one step, or applies its fault.
func (n *node) step(name, volume string, do func() error) error {
	if err := n.at(name, volume); errors.Is(err, errSkip) {
		return nil
	} else if err != nil {
		return err
	}
	return do()
}

// NodeStageVolume maps the image, or adopts a mapping of it that this node has already; then it makes
// and mounts its file system, or binds its device node.
func (n *node) NodeStageVolume(
	_ context.Context, r *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	volume := r.GetVolumeId()
	unlock, err := n.lock(volume)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &staging{node: n, request: r, target: filepath.Join(r.GetStagingTargetPath(), volume)}
	if there, err := isMounted(s.target); err != nil || there {
		return &csi.NodeStageVolumeResponse{}, internal(err)
	}
	if s.shared() && !s.isBlock() {
		return nil, status.Error(codes.InvalidArgument,
			"rbd: RWX access mode request is only valid for volumes with access type `block`")
	}
	if err := s.resolve(); err != nil {
		return nil, internal(err)
	}
	err = s.step("stash", func() error { return s.stash.write(r.GetStagingTargetPath()) })
	if err != nil {
		return nil, internal(err)
	}
	if err := s.do(); err != nil {
		s.rollBack()
		return nil, internal(err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

type staging struct {
	node    *node
	request *csi.NodeStageVolumeRequest
	image   image
	target  string
	stash   stash
	device  string

	// The steps done so far, for the rollback.
	mapped   string
	luks     bool
	hasMount bool
	mounted  bool
}

func (s *staging) step(name string, do func() error) error {
	return s.node.step("NodeStage."+name, s.request.GetVolumeId(), do)
}

func (s *staging) isBlock() bool { return s.request.GetVolumeCapability().GetBlock() != nil }

func (s *staging) accessMode() csi.VolumeCapability_AccessMode_Mode {
	return s.request.GetVolumeCapability().GetAccessMode().GetMode()
}

// mapsReadOnly is true for ReadOnlyMany alone; for one reader the mount is read-only, not the map.
func (s *staging) mapsReadOnly() bool {
	return s.accessMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

func (s *staging) readOnly() bool {
	return s.mapsReadOnly() || s.accessMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
}

func (s *staging) shared() bool {
	return s.accessMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

func (s *staging) attribute(name string) string { return s.request.GetVolumeContext()[name] }

func (s *staging) isStatic() bool { return s.attribute("staticVolume") == "true" }

// resolve finds the image and queries Ceph for it (populateRbdVol): the first step that can fail.
func (s *staging) resolve() (err error) {
	handle := s.request.GetVolumeId()
	s.image, err = s.node.imageOf(handle, s.request.GetVolumeContext(), s.request.GetSecrets())
	var info imageInfo
	if err == nil {
		info, err = s.info()
	}
	switch {
	case err != nil && s.isStatic():
		return err
	case err != nil:
		return fmt.Errorf("error generating volume %s: %w", handle, err)
	}
	isNbd := s.attribute("mounter") == "rbd-nbd"
	if !isNbd && info.Features&^s.node.kernelFeatures != 0 {
		return errors.New("unsupported krbd Feature")
	}
	s.stash = stash{
		Version: 3, Pool: s.image.pool, RadosNamespace: s.image.namespace, Image: s.image.name,
		NbdAccess: isNbd, Encrypted: s.attribute("encrypted") == "true",
	}
	return nil
}

func (s *staging) info() (imageInfo, error) { return s.node.connections.of(s.image).info(s.image) }

func (s *staging) do() error {
	if err := s.attach(); err != nil {
		return err
	}
	s.mapped = s.device
	if s.stash.NbdAccess {
		s.stash.Device = s.device
		if err := s.stash.write(s.request.GetStagingTargetPath()); err != nil {
			return err
		}
	}
	if s.stash.Encrypted {
		if err := s.step("luks", s.openLuks); err != nil {
			return err
		}
		s.luks = true
	}
	if err := s.makeTarget(); err != nil {
		return err
	}
	s.hasMount = true
	if s.isBlock() {
		return s.step("mount", s.bindDevice)
	}
	if err := s.makeFileSystem(); err != nil {
		return err
	}
	return s.step("mount", s.mountFileSystem)
}

// attach adopts the device that this node has mapped already, whatever mapped it and whatever else
// watches the image; only without such a device it checks the watchers (attachRBDImage).
func (s *staging) attach() error {
	if s.device = s.image.device(s.stash.NbdAccess); s.device != "" {
		return nil
	}
	if err := s.step("in-use-check", s.checkInUse); err != nil {
		return err
	}
	if err := s.step("map", s.mapImage); err != nil {
		return err
	}
	return s.step("after-map", func() error { return nil })
}

func (s *staging) checkInUse() error {
	pause := s.node.inUseDelay
	for look := 1; ; look++ {
		used, err := s.inUse()
		if err != nil {
			return fmt.Errorf("fail to check rbd image status: (%w)", err)
		}
		if !used || s.shared() || s.mapsReadOnly() {
			return nil
		}
		if look == inUseLooks {
			return status.Errorf(codes.Internal, "rbd image %s is still being used", s.image.spec())
		}
		time.Sleep(pause)
		pause = time.Duration(float64(pause) * inUseFactor)
	}
}

func (s *staging) inUse() (bool, error) {
	info, err := s.info()
	if err != nil {
		return false, err
	}
	if info.Mirrored && !info.Primary {
		return false, fmt.Errorf("cannot map image %s it is not primary", s.image.spec())
	}
	expected := 1
	if info.Primary {
		expected += s.image.mirrorDaemons
	}
	return info.Watchers > expected, nil
}

func (s *staging) mapImage() (err error) {
	s.device, err = s.image.mapDevice(s.request.GetVolumeId(), s.stash.NbdAccess, s.mapsReadOnly())
	return err
}

func (s *staging) openLuks() error {
	name := luksName(s.request.GetVolumeId())
	err := openLuks(s.device, name, s.request.GetSecrets()["encryptionPassphrase"])
	s.device = "/dev/mapper/" + name
	return err
}

func (s *staging) makeTarget() error {
	if s.isBlock() {
		return makeFile(s.target)
	}
	return os.MkdirAll(s.target, 0o750)
}

func (s *staging) bindDevice() error {
	if err := bind(s.device, s.target, "", []string{"_netdev"}); err != nil {
		return err
	}
	s.mounted = true
	return nil
}

func (s *staging) fsType() string {
	if named := s.request.GetVolumeCapability().GetMount().GetFsType(); named != "" {
		return named
	}
	return "ext4"
}

// makeFileSystem is for provisioned volumes; a static volume is formatted when it is mounted.
func (s *staging) makeFileSystem() error {
	format, err := formatter().GetDiskFormat(s.device)
	if err != nil || format != "" || s.isStatic() || s.readOnly() {
		return err
	}
	return s.step("mkfs", func() error { return makeFileSystem(s.device, s.fsType()) })
}

func (s *staging) mountFileSystem() error {
	own := []string{"_netdev"}
	if s.fsType() == "xfs" {
		own = []string{"nouuid", "_netdev"}
	}
	options := mountOptions(s.request.GetVolumeCapability(), own...)
	if s.readOnly() && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if err := formatter().FormatAndMount(s.device, s.target, s.fsType(), options); err != nil {
		return err
	}
	s.mounted = true
	return nil
}

// rollBack undoes the steps done. As in ceph-csi it stops if umount fails, and removes the stash even
// if unmap failed: this leaves a mapping without a record. It unmaps an adopted device too.
func (s *staging) rollBack() {
	if s.mounted {
		if err := mounter().Unmount(s.target); err != nil {
			log.Printf("failed to unmount stagingtargetPath: %s with error: %v", s.target, err)
			return
		}
	}
	if s.hasMount {
		if err := os.Remove(s.target); err != nil {
			log.Printf("failed to remove stagingtargetPath: %s with error: %v", s.target, err)
		}
	}
	if s.mapped != "" {
		err := s.step("rollback-unmap", func() error {
			return detach(s.mapped, s.request.GetVolumeId(), s.luks, s.stash.NbdAccess)
		})
		if err != nil {
			log.Printf("failed to unmap rbd device: %s for volume %s with error: %v",
				s.mapped, s.request.GetVolumeId(), err)
		}
	}
	os.Remove(stashPath(s.request.GetStagingTargetPath()))
}

func luksName(volume string) string { return "luks-rbd-" + volume }

// detach closes LUKS if it is open, and unmaps: with LUKS by the device below it.
func detach(specOrDevice, volume string, encrypted, isNbd bool) error {
	if encrypted {
		if device := luksDevice(luksName(volume)); device != "" {
			if err := closeLuks(luksName(volume)); err != nil {
				return err
			}
			specOrDevice = device
		}
	}
	return unmap(specOrDevice, isNbd)
}

func makeFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// NodePublishVolume binds the staged volume to the pod's directory.
func (n *node) NodePublishVolume(
	_ context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	volume, target := r.GetVolumeId(), r.GetTargetPath()
	unlock, err := n.lock(target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if there, err := isMounted(target); err != nil || there {
		return &csi.NodePublishVolumeResponse{}, internal(err)
	}
	err = n.step("NodePublish.mount", volume, func() error {
		if r.GetVolumeCapability().GetBlock() != nil {
			if err := makeFile(target); err != nil {
				return err
			}
		} else if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		options := mountOptions(r.GetVolumeCapability(), "_netdev")
		if r.GetReadonly() {
			options = append(options, "ro")
		}
		fsType := r.GetVolumeCapability().GetMount().GetFsType()
		return bind(filepath.Join(r.GetStagingTargetPath(), volume), target, fsType, options)
	})
	return &csi.NodePublishVolumeResponse{}, internal(err)
}

// NodeUnpublishVolume removes the pod's bind; a path that is no mount is removed with its content.
func (n *node) NodeUnpublishVolume(
	_ context.Context, r *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	volume, target := r.GetVolumeId(), r.GetTargetPath()
	unlock, err := n.lock(target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = n.step("NodeUnpublish.umount", volume, func() error {
		there, err := isMounted(target)
		if err != nil {
			return err
		}
		if !there {
			return os.RemoveAll(target)
		}
		if err := mounter().Unmount(target); err != nil {
			return err
		}
		return os.RemoveAll(target)
	})
	return &csi.NodeUnpublishVolumeResponse{}, internal(err)
}

// NodeUnstageVolume unmounts, closes LUKS, unmaps, and removes the stash, in this order.
func (n *node) NodeUnstageVolume(
	_ context.Context, r *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	volume := r.GetVolumeId()
	unlock, err := n.lock(volume)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &csi.NodeUnstageVolumeResponse{}, internal(n.unstage(volume, r.GetStagingTargetPath()))
}

func (n *node) unstage(volume, path string) error {
	target := filepath.Join(path, volume)
	mounted, err := isMounted(target)
	if err != nil {
		return err
	}
	err = n.step("NodeUnstage.umount", volume, func() error {
		if mounted {
			if err := mounter().Unmount(target); err != nil {
				return err
			}
		}
		if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	s, found, err := readStash(path)
	if err != nil {
		return err
	}
	if !found {
		// No record for an unmap: this is how ceph-csi leaks a mapping.
		if mounted {
			return errors.New("Failed as missing stash")
		}
		return nil
	}
	if s.Encrypted {
		// A separate step, for faults: detach closes a device that it leaves open.
		if err := n.step("NodeUnstage.luks", volume, func() error { return nil }); err != nil {
			return err
		}
	}
	err = n.step("NodeUnstage.unmap", volume, func() error {
		return detach(s.spec(), volume, s.Encrypted, s.NbdAccess)
	})
	if err != nil {
		return err
	}
	return os.Remove(stashPath(path))
}
