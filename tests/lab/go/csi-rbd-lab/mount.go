package main

import (
	"log"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	mount "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// mounter is made on first use: it runs umount to detect its features.
var mounter = sync.OnceValue(func() mount.Interface { return mount.NewWithoutSystemd("") })

var mkfsArguments = map[string][]string{
	"ext4": {"-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1"},
	"xfs":  {"-K", "-m", "reflink=0"},
}

// isMounted treats a path that does not exist as no mount point.
func isMounted(path string) (bool, error) {
	mounted, err := mounter().IsMountPoint(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return mounted, err
}

func bind(source, target, fsType string, options []string) error {
	return mounter().MountSensitiveWithoutSystemd(source, target, fsType, append(options, "bind"), nil)
}

// formatter checks, formats and mounts as kubelet and ceph-csi do, with their library's error texts.
func formatter() *mount.SafeFormatAndMount {
	return &mount.SafeFormatAndMount{Interface: mounter(), Exec: utilexec.New()}
}

// makeFileSystem formats a new image; ceph-csi returns the exit status and logs what mkfs printed.
func makeFileSystem(device, fsType string) error {
	args := append(slices.Clone(mkfsArguments[fsType]), device)
	output, err := utilexec.New().Command("mkfs."+fsType, args...).CombinedOutput()
	if err != nil {
		log.Printf("failed to run mkfs.%s (%v) error: %v, output: %s", fsType, args, err, output)
	}
	return err
}

// mountOptions are the driver's own, then those of the PV, each once.
func mountOptions(capability *csi.VolumeCapability, own ...string) []string {
	options := own
	for _, option := range capability.GetMount().GetMountFlags() {
		if !slices.Contains(options, option) {
			options = append(options, option)
		}
	}
	return options
}

// openLuks formats a device that has no format, and opens it. Its pbkdf is cheap: ceph-csi's Argon2
// takes an emulated processor minutes.
func openLuks(device, name, passphrase string) error {
	format, err := formatter().GetDiskFormat(device)
	if err != nil {
		return err
	}
	if format == "" {
		if _, err := run(passphrase, "cryptsetup", "-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2",
			"--pbkdf-force-iterations", "1000", device, "-d", "/dev/stdin"); err != nil {
			return err
		}
	}
	_, err = run(passphrase, "cryptsetup", "luksOpen", device, name, "--disable-keyring", "-d", "/dev/stdin")
	return err
}

// luksDevice returns the device below an open LUKS device, and "" if none is open.
func luksDevice(name string) string {
	out, err := run("", "cryptsetup", "status", name)
	if err != nil || !strings.Contains(strings.SplitN(out, "\n", 2)[0], " is active") {
		return ""
	}
	for _, line := range strings.Split(out, "\n") {
		if device, found := strings.CutPrefix(strings.TrimSpace(line), "device:"); found {
			return strings.TrimSpace(device)
		}
	}
	return ""
}

func closeLuks(name string) error {
	_, err := run("", "cryptsetup", "luksClose", name)
	return err
}
