package main

import (
	"errors"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A real ceph-csi runs a program for nearly every step. To make these steps fail, this program
// replaces them: these names are links to it, in a directory first on ceph-csi's PATH.
var programs = []string{"rbd", "rbd-nbd", "mkfs.ext4", "mkfs.xfs", "cryptsetup", "mount", "umount"}

const (
	faultsVariable = "CSI_RBD_LAB_FAULTS"
	pathVariable   = "CSI_RBD_LAB_PATH"
	// A volume of the deployment: ceph-csi does not make it.
	keyDirectory = "/tmp/csi/keys"
)

// runCephCSI runs a real ceph-csi as the driver's node part until it or this program ends.
func runCephCSI(o options, endpoint string) {
	links := filepath.Join(filepath.Dir(o.faults), "bin")
	for _, directory := range []string{links, filepath.Dir(endpoint), keyDirectory} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			log.Fatal(err)
		}
	}
	if err := linkPrograms(links); err != nil {
		log.Fatal(err)
	}
	command := exec.Command(o.cephcsi, "--type=rbd", "--nodeserver=true", "--nodeid="+o.nodeID,
		"--drivername="+o.driver, "--endpoint=unix://"+endpoint,
		"--stagingpath="+filepath.Join(o.kubeletRoot, "plugins", "kubernetes.io", "csi"), "--v=4")
	command.Env = append(os.Environ(), faultsVariable+"="+o.faults, pathVariable+"="+os.Getenv("PATH"),
		"PATH="+links+":"+os.Getenv("PATH"))
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	// It ends with this process: the lab knows only our pid. The thread that starts it must stay.
	runtime.LockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log.Fatalf("%s ended: %v", o.cephcsi, command.Run())
}

// waitForSocket returns once a driver listens: registration with kubelet waits for that.
func waitForSocket(path string) {
	for {
		if connection, err := net.Dial("unix", path); err == nil {
			connection.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func linkPrograms(directory string) error {
	ourselves, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range programs {
		err := os.Symlink(ourselves, filepath.Join(directory, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// asProgram runs the program that ceph-csi calls, unless its step has a fault.
func asProgram(name string, args []string) int {
	os.Setenv("PATH", os.Getenv(pathVariable))
	before, after := stepsOf(name, args)
	if code, ended := atProgram(before, args); ended {
		return code
	}
	command := exec.Command(name, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		log.Print(err)
		return 127
	}
	code, _ := atProgram(after, args)
	return code
}

// stepsOf returns the steps of a program call: one before it runs, one after its success.
func stepsOf(name string, args []string) (before, after string) {
	line := strings.Join(args, " ")
	last := ""
	if len(args) > 0 {
		last = args[len(args)-1]
	}
	ofPod := strings.Contains(last, "/pods/")
	switch {
	case strings.HasPrefix(name, "mkfs."):
		return "NodeStage.mkfs", ""
	case name == "cryptsetup" && strings.Contains(line, "luksClose"):
		return "NodeUnstage.luks", ""
	case name == "cryptsetup" && (strings.Contains(line, "luksFormat") || strings.Contains(line, "luksOpen")):
		return "NodeStage.luks", ""
	case name == "mount" && ofPod:
		return "NodePublish.mount", ""
	case name == "mount":
		return "NodeStage.mount", ""
	case name == "umount" && ofPod:
		return "NodeUnpublish.umount", ""
	case name == "umount":
		return "NodeUnstage.umount", ""
	case slices.Contains(args, "unmap") && strings.Contains(line, "unmap /dev/"):
		// The rollback names the device, NodeUnstage the image (if it is not encrypted).
		return "NodeStage.rollback-unmap", ""
	case slices.Contains(args, "unmap"):
		return "NodeUnstage.unmap", ""
	case slices.Contains(args, "map"):
		return "NodeStage.map", "NodeStage.after-map"
	}
	return "", ""
}

// atProgram applies the fault of a step; ended reports that the program must not continue.
func atProgram(step string, args []string) (code int, ended bool) {
	if step == "" {
		return 0, false
	}
	f, found := takeFault(os.Getenv(faultsVariable), step, func(volume string) bool {
		return concerns(args, volume)
	})
	if !found {
		return 0, false
	}
	switch f.Action {
	case "crash":
		// The parent is ceph-csi.
		syscall.Kill(os.Getppid(), syscall.SIGKILL)
		return 1, true
	case "skip":
		return 0, true
	case "error":
		os.Stderr.WriteString(f.Message + "\n")
		return 1, true
	}
	return 0, false
}

// concerns returns whether a program's arguments are about a volume. They can contain its handle
// (in a path), its image (whose name ends as the handle does), or the device of that image.
func concerns(args []string, handle string) bool {
	identity := handle
	if len(handle) > uuidLength {
		identity = handle[len(handle)-uuidLength:]
	}
	for _, arg := range args {
		if strings.Contains(arg, identity) || strings.Contains(imageOfDevice(arg), identity) {
			return true
		}
	}
	return false
}

func imageOfDevice(path string) string {
	number, isDevice := strings.CutPrefix(path, "/dev/rbd")
	if !isDevice {
		return ""
	}
	name, _ := os.ReadFile(filepath.Join("/sys/bus/rbd/devices", number, "name"))
	return string(name)
}
