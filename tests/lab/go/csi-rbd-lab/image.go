package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

//go:embed watchers.py
var watchersProgram string

// uuidLength is the length of the UUID at the end of a handle, and of the name of its image.
const uuidLength = 36

// image holds the facts of a volume that NodeStage needs.
type image struct {
	pool, namespace, name string
	monitors              string
	mirrorDaemons         int
	user, key             string
}

func (i image) spec() string {
	if i.namespace != "" {
		return i.pool + "/" + i.namespace + "/" + i.name
	}
	return i.pool + "/" + i.name
}

// imageOf resolves volume attributes and secrets as ceph-csi does: a static volume's image is named
// by its handle, or by imageName if CSI migration made it. For a provisioned volume ceph-csi reads
// pool and name from its journal; the attributes have the same values.
func (n *node) imageOf(handle string, attributes, secrets map[string]string) (image, error) {
	i := image{
		pool: attributes["pool"], name: attributes["imageName"], user: secrets["userID"], key: secrets["userKey"],
	}
	static := attributes["staticVolume"] == "true"
	if static && attributes["migration"] != "true" {
		i.name = handle
	}
	if i.name == "" && len(handle) > uuidLength {
		prefix := attributes["volumeNamePrefix"]
		if prefix == "" {
			prefix = "csi-vol-"
		}
		i.name = prefix + handle[len(handle)-uuidLength:]
	}
	var err error
	i.monitors, i.namespace, i.mirrorDaemons, err = n.cluster(attributes["clusterID"])
	if err == nil && static {
		err = checkFeatures(attributes)
	}
	return i, err
}

// checkFeatures is validateImageFeatures of ceph-csi: it reads what the PV asks for, not the image.
func checkFeatures(attributes map[string]string) error {
	for _, feature := range strings.Split(attributes["imageFeatures"], ",") {
		if feature == "journaling" && attributes["mounter"] != "rbd-nbd" {
			return fmt.Errorf("feature %s requires rbd-nbd for mounter", feature)
		}
	}
	return nil
}

// cluster reads ceph-csi's config.json.
func (n *node) cluster(id string) (monitors, namespace string, mirrorDaemons int, err error) {
	text, err := os.ReadFile(n.config)
	if err != nil {
		return "", "", 0, fmt.Errorf("error fetching configuration for cluster ID %q: %w", id, err)
	}
	var clusters []struct {
		ClusterID string   `json:"clusterID"`
		Monitors  []string `json:"monitors"`
		RBD       struct {
			RadosNamespace    string `json:"radosNamespace"`
			MirrorDaemonCount int    `json:"mirrorDaemonCount"`
		} `json:"rbd"`
	}
	if err := json.Unmarshal(text, &clusters); err != nil {
		return "", "", 0, err
	}
	for _, c := range clusters {
		if c.ClusterID == id {
			return strings.Join(c.Monitors, ","), c.RBD.RadosNamespace, max(c.RBD.MirrorDaemonCount, 1), nil
		}
	}
	return "", "", 0, fmt.Errorf("missing configuration for cluster ID %q", id)
}

// stash is ceph-csi's image-meta.json, version 3: the facts that NodeUnstage needs.
type stash struct {
	Version         int    `json:"Version"`
	Pool            string `json:"pool"`
	RadosNamespace  string `json:"radosNamespace"`
	Image           string `json:"image"`
	UnmapOptions    string `json:"unmapOptions"`
	NbdAccess       bool   `json:"accessType"`
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

// run runs one program and returns its output; the error has its exit status and its output.
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
	args := slices.Clone(e.args)
	for i := range args {
		if strings.HasPrefix(args[i], "--keyfile=") {
			args[i] = "--keyfile=***stripped***"
		}
	}
	return fmt.Sprintf("an error (%v) occurred while running %s args: %v", e.cause, e.program, args)
}

// withKeyFile provides a file with the key: the key must not be on a command line.
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

// device returns the device of the image that this node has mapped already, and "" if there is
// none. ceph-csi ignores an error here (findDeviceMappingImage).
func (i image) device(isNbd bool) string {
	command := []string{"rbd", "device", "list", "--format=json", "--device-type", "krbd"}
	if isNbd {
		command = []string{"rbd-nbd", "list-mapped", "--format=json"}
	}
	out, err := run("", command[0], command[1:]...)
	var mapped []struct {
		Name      string `json:"name"`
		Image     string `json:"image"` // in place of the name, of rbd-nbd
		Pool      string `json:"pool"`
		Namespace string `json:"namespace"`
		Device    string `json:"device"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &mapped)
	}
	if err != nil {
		log.Printf("failed to determine if image (%s) is mapped to a device (%v)", i.spec(), err)
		return ""
	}
	for _, m := range mapped {
		if cmp.Or(m.Name, m.Image) == i.name && m.Pool == i.pool && m.Namespace == i.namespace {
			return m.Device
		}
	}
	return ""
}

func (i image) mapDevice(handle string, isNbd, readOnly bool) (device string, err error) {
	err = i.withKeyFile(func(who []string) error {
		program, args := "rbd", append(who, "map", i.spec())
		if isNbd {
			program = "rbd-nbd"
			args = append(args, "--try-netlink", "--reattach-timeout=300", "--io-timeout=0", "--cookie="+handle)
		} else {
			args = append(args, "--device-type", "krbd", "--options", "noudev")
		}
		if readOnly {
			args = append(args, "--read-only")
		}
		device, err = run("", program, args...)
		var failed *runError
		if errors.As(err, &failed) {
			return fmt.Errorf("rbd: map failed with error %w, rbd error output: %s", failed, failed.text)
		}
		return err
	})
	return device, err
}

// unmap has ceph-csi's error texts and tolerance: an unmapped image is a success, a device is not.
func unmap(specOrDevice string, isNbd bool) error {
	program, args := "rbd", []string{"unmap", specOrDevice, "--device-type", "krbd", "--options", "noudev"}
	if isNbd {
		program, args = "rbd-nbd", []string{"unmap", specOrDevice}
	}
	_, err := run("", program, args...)
	var failed *runError
	if !errors.As(err, &failed) {
		return err
	}
	for _, text := range []string{"rbd: %s: not a mapped image or snapshot", "rbd-nbd: %s is not mapped"} {
		isImage := !strings.HasPrefix(specOrDevice, "/dev/")
		if isImage && strings.Contains(failed.text, fmt.Sprintf(text, specOrDevice)) {
			return nil
		}
	}
	return fmt.Errorf("rbd: unmap for spec (%s) failed (%w): (%s)", specOrDevice, failed, failed.text)
}

// connections has one client for each key and monitors, as ceph-csi's pool has; no client ever ends.
type connections struct {
	mu     sync.Mutex
	opened map[image]*connection
}

func (c *connections) of(i image) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := image{monitors: i.monitors, user: i.user, key: i.key}
	if c.opened == nil {
		c.opened = map[image]*connection{}
	}
	if c.opened[who] == nil {
		c.opened[who] = &connection{who: who}
	}
	return c.opened[who]
}

// connection is one client: a program, since the bindings of librbd for Go need cgo.
type connection struct {
	who    image
	mu     sync.Mutex
	input  io.WriteCloser
	output *bufio.Reader
}

type imageInfo struct {
	Features uint64 `json:"features"`
	Watchers int    `json:"watchers"` // the check itself is one
	Mirrored bool   `json:"mirrored"`
	Primary  bool   `json:"primary"`
	Error    string `json:"error"`
}

// info opens an image and returns the facts that ceph-csi checks.
func (c *connection) info(i image) (imageInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.input == nil {
		if err := c.start(); err != nil {
			return imageInfo{}, err
		}
	}
	answer, err := c.ask(map[string]string{"pool": i.pool, "namespace": i.namespace, "name": i.name})
	if err != nil {
		c.stop()
		return answer, err
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

func (c *connection) start() error {
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
	c.input, c.output = input, bufio.NewReader(output)
	hello, err := c.ask(map[string]string{"user": c.who.user, "key": c.who.key, "monitors": c.who.monitors})
	if err == nil && hello.Error != "" {
		err = errors.New(hello.Error)
	}
	if err != nil {
		c.stop()
	}
	return err
}

func (c *connection) stop() {
	c.input.Close()
	c.input = nil
}

func (c *connection) ask(question map[string]string) (answer imageInfo, err error) {
	text, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	if _, err := c.input.Write(append(text, '\n')); err != nil {
		return answer, err
	}
	line, err := c.output.ReadBytes('\n')
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(line, &answer)
}
