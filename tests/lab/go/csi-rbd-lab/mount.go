package main

import (
	"errors"
	"log"
	"os"
	"strings"
)

// isMounted reads mountinfo: a bind of a file is a mount point too.
func isMounted(path string) (bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == path {
			return true, nil
		}
	}
	return false, nil
}

func mount(source, target, fsType string, options ...string) error {
	args := []string{}
	if fsType != "" {
		args = append(args, "-t", fsType)
	}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := run("", "mount", append(args, source, target)...)
	var failed *runError
	if errors.As(err, &failed) {
		return errors.New("mount failed: " + failed.Error() + "\nOutput: " + failed.text)
	}
	return err
}

func unmount(path string) error {
	_, err := run("", "umount", path)
	var failed *runError
	if errors.As(err, &failed) {
		return errors.New("unmount failed: " + failed.cause.Error() + "\nUnmounting arguments: " + path +
			"\nOutput: " + failed.text)
	}
	return err
}

// fileSystemOf asks blkid; empty where there is none.
func fileSystemOf(device string) (string, error) {
	out, err := run("", "blkid", "-p", "-s", "TYPE", "-o", "value", device)
	var failed *runError
	if errors.As(err, &failed) && failed.exitCode() == 2 {
		return "", nil
	}
	return out, err
}

func makeFileSystem(device, fsType string) error {
	args := map[string][]string{
		"ext4": {"-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1", device},
		"xfs":  {"-K", device},
	}[fsType]
	_, err := run("", "mkfs."+fsType, args...)
	var failed *runError
	if errors.As(err, &failed) {
		log.Printf("failed to run mkfs.%s error: %v, output: %s", fsType, failed.cause, failed.text)
		return failed.cause
	}
	return err
}

// openLuks formats a device that has no file system and opens it; dm-crypt's pbkdf is kept cheap.
func openLuks(device, name, passphrase string) error {
	kind, err := fileSystemOf(device)
	if err != nil {
		return err
	}
	if kind == "" {
		if _, err := run(passphrase, "cryptsetup", "-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2",
			"--pbkdf-force-iterations", "1000", device, "-d", "/dev/stdin"); err != nil {
			return err
		}
	}
	_, err = run(passphrase, "cryptsetup", "luksOpen", device, name, "--disable-keyring", "-d", "/dev/stdin")
	return err
}

func closeLuks(name string) error {
	if _, err := os.Stat("/dev/mapper/" + name); os.IsNotExist(err) {
		return nil
	}
	_, err := run("", "cryptsetup", "luksClose", name)
	var failed *runError
	if errors.As(err, &failed) {
		return errors.New("failed to close LUKS device: " + failed.text)
	}
	return err
}
