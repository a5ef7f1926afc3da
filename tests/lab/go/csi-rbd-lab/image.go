package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed watchers.py
var watchersProgram string

// uuidLength is that of what a handle, and the name of its image, end in.
const uuidLength = 36

// image is what NodeStage knows of a volume.
type image struct {
	pool, namespace, name string
	monitors              string
	user, key             string
}

func (i image) spec() string {
	if i.namespace != "" {
		return i.pool + "/" + i.namespace + "/" + i.name
	}
	return i.pool + "/" + i.name
}

// imageOf resolves volume attributes and secrets as ceph-csi does.
func (n *node) imageOf(handle string, attributes, secrets map[string]string) (image, error) {
	name := attributes["imageName"]
	if attributes["staticVolume"] == "true" && name == "" {
		name = handle
	}
	if name == "" && len(handle) > uuidLength {
		prefix := attributes["volumeNamePrefix"]
		if prefix == "" {
			prefix = "csi-vol-"
		}
		name = prefix + handle[len(handle)-uuidLength:]
	}
	monitors, namespace, err := n.cluster(attributes["clusterID"])
	if err != nil {
		return image{}, err
	}
	if given := attributes["radosNamespace"]; given != "" {
		namespace = given
	}
	return image{
		pool: attributes["pool"], namespace: namespace, name: name, monitors: monitors,
		user: secrets["userID"], key: secrets["userKey"],
	}, nil
}

// cluster reads ceph-csi's config.json.
func (n *node) cluster(id string) (monitors, namespace string, err error) {
	text, err := os.ReadFile(n.config)
	if err != nil {
		return "", "", err
	}
	var clusters []struct {
		ClusterID string   `json:"clusterID"`
		Monitors  []string `json:"monitors"`
		RBD       struct {
			RadosNamespace string `json:"radosNamespace"`
		} `json:"rbd"`
	}
	if err := json.Unmarshal(text, &clusters); err != nil {
		return "", "", err
	}
	for _, c := range clusters {
		if c.ClusterID == id {
			return strings.Join(c.Monitors, ","), c.RBD.RadosNamespace, nil
		}
	}
	return "", "", fmt.Errorf("missing configuration for cluster ID %q", id)
}

// stash is ceph-csi's image-meta.json, version 3: what NodeUnstage needs to know.
type stash struct {
	Version         int    `json:"Version"`
	Pool            string `json:"pool"`
	RadosNamespace  string `json:"radosNamespace"`
	Image           string `json:"image"`
	UnmapOptions    string `json:"unmapOptions"`
	AccessType      bool   `json:"accessType"`
	NbdAccess       bool   `json:"nbdAccess,omitempty"`
	Encrypted       bool   `json:"encrypted"`
	Device          string `json:"device"`
	LogDir          string `json:"logDir"`
	LogFileStrategy string `json:"logFileStrategy"`
}

func stashPath(staging string) string { return filepath.Join(staging, "image-meta.json") }

func (s stash) write(staging string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stashPath(staging), text, 0o600)
}

func readStash(staging string) (s stash, found bool, err error) {
	text, err := os.ReadFile(stashPath(staging))
	if os.IsNotExist(err) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	return s, true, json.Unmarshal(text, &s)
}

func (s stash) spec() string {
	return image{pool: s.Pool, namespace: s.RadosNamespace, name: s.Image}.spec()
}

// run runs one program and gives its output; the error carries exit status and what it printed.
func run(input, program string, args ...string) (string, error) {
	command := exec.Command(program, args...)
	command.Stdin = strings.NewReader(input)
	var out, errs strings.Builder
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), &runError{program: program, args: args, cause: err, text: errs.String()}
	}
	return strings.TrimSpace(out.String()), nil
}

type runError struct {
	program string
	args    []string
	cause   error
	text    string
}

func (e *runError) Error() string {
	return fmt.Sprintf("an error (%v) occurred while running %s args: %v", e.cause, e.program, e.args)
}

func (e *runError) exitCode() int {
	var exit *exec.ExitError
	if errors.As(e.cause, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// withKeyFile lends a file with the key: it must not stand on a command line.
func (i image) withKeyFile(use func(args []string) error) error {
	file, err := os.CreateTemp("", "keyfile-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(i.key); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return use([]string{"--id", i.user, "-m", i.monitors, "--keyfile=" + file.Name()})
}

func (i image) mapKrbd(readOnly bool) (device string, err error) {
	err = i.withKeyFile(func(who []string) error {
		args := append(who, "map", i.spec(), "--device-type", "krbd", "--options", "noudev")
		if readOnly {
			args = append(args, "--read-only")
		}
		device, err = run("", "rbd", args...)
		var failed *runError
		if errors.As(err, &failed) {
			return fmt.Errorf("rbd: map failed with error %v, rbd error output: %s", failed, failed.text)
		}
		return err
	})
	return device, err
}

func (i image) mapNbd(handle string) (device string, err error) {
	err = i.withKeyFile(func(who []string) error {
		args := append(who, "map", i.spec(), "--try-netlink", "--reattach-timeout=300", "--io-timeout=0",
			"--cookie="+handle)
		device, err = run("", "rbd-nbd", args...)
		return err
	})
	return device, err
}

// unmap is rbd unmap with ceph-csi's tolerance and words: what is not mapped is unmapped.
func unmap(specOrDevice string, isDevice, isNbd bool) error {
	what := "spec"
	if isDevice {
		what = "device"
	}
	args := []string{"unmap", specOrDevice, "--device-type", "krbd", "--options", "noudev"}
	program := "rbd"
	if isNbd {
		program, args = "rbd-nbd", []string{"unmap", specOrDevice}
	}
	_, err := run("", program, args...)
	var failed *runError
	if !errors.As(err, &failed) {
		return err
	}
	if failed.exitCode() == 22 || strings.Contains(failed.text, "not mapped") {
		return nil
	}
	return fmt.Errorf("rbd: unmap for %s (%s) failed (%v): (%s)", what, specOrDevice, failed, failed.text)
}

// watching keeps one client for all in-use checks, as ceph-csi does.
type watching struct {
	mu     sync.Mutex
	input  io.WriteCloser
	output *bufio.Reader
}

func (w *watching) start(i image) error {
	command := exec.Command("/usr/bin/python3", "-c", watchersProgram)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	go command.Wait()
	w.input, w.output = input, bufio.NewReader(output)
	var hello map[string]any
	return w.ask(map[string]string{"user": i.user, "key": i.key, "monitors": i.monitors}, &hello)
}

func (w *watching) ask(question, answer any) error {
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	if _, err := w.input.Write(append(text, '\n')); err != nil {
		return err
	}
	line, err := w.output.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

// of gives the addresses that watch the image beside the check itself.
func (w *watching) of(i image) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.input == nil {
		if err := w.start(i); err != nil {
			w.input = nil
			return nil, err
		}
	}
	var answer struct {
		Watchers []string `json:"watchers"`
		Error    string   `json:"error"`
	}
	err := w.ask(map[string]string{"pool": i.pool, "namespace": i.namespace, "name": i.name}, &answer)
	if err != nil {
		w.input.Close()
		w.input = nil
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Watchers, nil
}
