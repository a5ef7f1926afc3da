package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ceph-csi looks ten times, each pause 1.4 times the one before (rbd_util.go, waitForrbdImage).
const (
	inUseLooks  = 10
	inUseFactor = 1.4
)

type node struct {
	csi.UnimplementedNodeServer
	options
	busy     sync.Map
	watchers watching
}

func newNode(o options) *node { return &node{options: o} }

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.nodeID}, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{
		Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{
			Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		}},
	}}}, nil
}

// lock takes a volume for one call; a second call at the same time gets ceph-csi's words.
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

// step does one step unless its fault says otherwise.
func (n *node) step(name, volume string, do func() error) error {
	if err := n.at(name, volume); errors.Is(err, errSkip) {
		return nil
	} else if err != nil {
		return err
	}
	return do()
}

// NodeStageVolume maps the image, makes and mounts its file system, or binds its device node.
func (n *node) NodeStageVolume(
	_ context.Context, r *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	volume := r.GetVolumeId()
	unlock, err := n.lock(volume)
	if err != nil {
		return nil, err
	}
	defer unlock()
	img, err := n.imageOf(volume, r.GetVolumeContext(), r.GetSecrets())
	if err != nil {
		return nil, internal(err)
	}
	target := filepath.Join(r.GetStagingTargetPath(), volume)
	if there, err := isMounted(target); err != nil || there {
		return &csi.NodeStageVolumeResponse{}, internal(err)
	}
	s := &staging{node: n, request: r, image: img, target: target}
	if s.shared() && !s.isBlock() {
		return nil, status.Error(codes.InvalidArgument,
			"rbd: RWX access mode request is only valid for volumes with access type `block`")
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
	mapped  string
	mounted bool
}

func (s *staging) step(name string, do func() error) error {
	return s.node.step("NodeStage."+name, s.request.GetVolumeId(), do)
}

func (s *staging) isBlock() bool { return s.request.GetVolumeCapability().GetBlock() != nil }

func (s *staging) accessMode() csi.VolumeCapability_AccessMode_Mode {
	return s.request.GetVolumeCapability().GetAccessMode().GetMode()
}

func (s *staging) readOnly() bool {
	return s.accessMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY ||
		s.accessMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
}

func (s *staging) shared() bool {
	return s.accessMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

func (s *staging) attribute(name string) string { return s.request.GetVolumeContext()[name] }

func (s *staging) do() error {
	s.stash = stash{
		Version: 3, Pool: s.image.pool, RadosNamespace: s.image.namespace, Image: s.image.name,
		NbdAccess: s.attribute("mounter") == "rbd-nbd", Encrypted: s.attribute("encrypted") == "true",
	}
	if err := s.step("stash", func() error { return s.stash.write(s.request.GetStagingTargetPath()) }); err != nil {
		return err
	}
	if _, err := run("", "rbd", "device", "list", "--format=json", "--device-type", "krbd"); err != nil {
		return err
	}
	if !s.readOnly() && !s.shared() {
		if err := s.step("in-use-check", s.checkInUse); err != nil {
			return err
		}
	}
	if err := s.step("map", s.mapImage); err != nil {
		return err
	}
	if s.stash.Encrypted {
		if err := s.step("luks", s.openLuks); err != nil {
			return err
		}
	}
	if s.isBlock() {
		return s.step("mount", s.bindDevice)
	}
	if err := s.step("mkfs", s.makeFileSystem); err != nil {
		return err
	}
	return s.step("mount", s.mountFileSystem)
}

func (s *staging) checkInUse() error {
	pause := s.node.inUseDelay
	for look := 1; ; look++ {
		watchers, err := s.node.watchers.of(s.image)
		if err != nil {
			return err
		}
		if len(watchers) == 0 {
			return nil
		}
		if look == inUseLooks {
			return status.Errorf(codes.Internal, "rbd image %s is still being used", s.image.spec())
		}
		time.Sleep(pause)
		pause = time.Duration(float64(pause) * inUseFactor)
	}
}

func (s *staging) mapImage() (err error) {
	if s.stash.NbdAccess {
		s.device, err = s.image.mapNbd(s.request.GetVolumeId())
	} else {
		s.device, err = s.image.mapKrbd(s.readOnly())
	}
	s.mapped = s.device
	if err != nil {
		return err
	}
	return s.step("after-map", func() error { return nil })
}

func (s *staging) luksName() string { return "luks-rbd-" + s.request.GetVolumeId() }

func (s *staging) openLuks() error {
	s.stash.Device = s.device
	if err := s.stash.write(s.request.GetStagingTargetPath()); err != nil {
		return err
	}
	err := openLuks(s.device, s.luksName(), s.request.GetSecrets()["encryptionPassphrase"])
	s.device = "/dev/mapper/" + s.luksName()
	return err
}

func (s *staging) bindDevice() error {
	file, err := os.OpenFile(s.target, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	file.Close()
	s.mounted = true
	return mount(s.device, s.target, "", "bind")
}

func (s *staging) fsType() string {
	if named := s.request.GetVolumeCapability().GetMount().GetFsType(); named != "" {
		return named
	}
	return "ext4"
}

func (s *staging) makeFileSystem() error {
	kind, err := fileSystemOf(s.device)
	if err != nil || kind != "" {
		return err
	}
	if s.readOnly() {
		return fmt.Errorf("cannot mount unformatted disk %s as we are manipulating it in read-only mode", s.device)
	}
	return makeFileSystem(s.device, s.fsType())
}

func (s *staging) mountFileSystem() error {
	if err := os.MkdirAll(s.target, 0o755); err != nil {
		return err
	}
	options := s.request.GetVolumeCapability().GetMount().GetMountFlags()
	if s.readOnly() {
		options = append(options, "ro")
	}
	s.mounted = true
	return mount(s.device, s.target, s.fsType(), options...)
}

// rollBack undoes what was done. As in ceph-csi the stash goes even where unmap failed: that is how
// a mapping becomes nobody's.
func (s *staging) rollBack() {
	if s.mounted {
		if there, _ := isMounted(s.target); there {
			log.Printf("rollback: umount: %v", unmount(s.target))
		}
	}
	os.Remove(s.target)
	if s.stash.Encrypted {
		log.Printf("rollback: luksClose: %v", closeLuks(s.luksName()))
	}
	if s.mapped != "" {
		err := s.step("rollback-unmap", func() error {
			return unmap(s.mapped, true, s.stash.NbdAccess)
		})
		log.Printf("rollback: unmap: %v", err)
	}
	os.Remove(stashPath(s.request.GetStagingTargetPath()))
}

// NodePublishVolume binds the staged volume where the pod will see it.
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
			file, err := os.OpenFile(target, os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			file.Close()
		} else if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		if err := mount(filepath.Join(r.GetStagingTargetPath(), volume), target, "", "bind"); err != nil {
			return err
		}
		if r.GetReadonly() && r.GetVolumeCapability().GetBlock() == nil {
			return mount("none", target, "", "bind", "remount", "ro")
		}
		return nil
	})
	return &csi.NodePublishVolumeResponse{}, internal(err)
}

// NodeUnpublishVolume removes the pod's bind; a path that is no mount is removed with what is in it.
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
		if err := unmount(target); err != nil {
			return err
		}
		return os.Remove(target)
	})
	return &csi.NodeUnpublishVolumeResponse{}, internal(err)
}

// NodeUnstageVolume unmounts, closes LUKS, unmaps, and forgets: in this order, the stash last.
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
	err := n.step("NodeUnstage.umount", volume, func() error {
		there, err := isMounted(target)
		if err != nil {
			return err
		}
		if there {
			if err := unmount(target); err != nil {
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
	if err != nil || !found {
		// Without a stash there is nothing to unmap: this is how ceph-csi leaks a mapping.
		return err
	}
	if s.Encrypted {
		err := n.step("NodeUnstage.luks", volume, func() error { return closeLuks("luks-rbd-" + volume) })
		if err != nil {
			return err
		}
	}
	err = n.step("NodeUnstage.unmap", volume, func() error {
		if s.Encrypted && s.Device != "" {
			return unmap(s.Device, true, s.NbdAccess)
		}
		return unmap(s.spec(), false, s.NbdAccess)
	})
	if err != nil {
		return err
	}
	return os.Remove(stashPath(path))
}
