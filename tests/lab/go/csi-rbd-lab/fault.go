package main

import (
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errSkip makes the driver skip a step as if the step had succeeded.
var errSkip = errors.New("skipped by a fault")

// fault is the content of a file named like a step: the action of the driver at that step.
type fault struct {
	Action  string     `json:"action"` // error, hang, crash or skip
	Message string     `json:"message"`
	Code    codes.Code `json:"code"`
	Volume  string     `json:"volume"` // only where the volume handle contains it
	Times   int        `json:"times"`  // 0: until the file is removed
}

// at applies the fault of a step, if there is one for this volume.
func (n *node) at(step, volume string) error {
	f, found := takeFault(n.faults, step, func(part string) bool { return strings.Contains(volume, part) })
	if !found {
		return nil
	}
	switch f.Action {
	case "crash":
		os.Exit(2)
	case "hang":
		return nil
	case "skip":
		return errSkip
	}
	if f.Code == codes.OK {
		f.Code = codes.Internal
	}
	return status.Error(f.Code, f.Message)
}

// takeFault returns the fault of a step if it concerns the volume, and counts it. For a hang it
// returns after the hang. A step's faults are the files STEP and STEP@ANYTHING.
func takeFault(directory, step string, concerns func(volume string) bool) (fault, bool) {
	paths, _ := filepath.Glob(filepath.Join(directory, step+"@*"))
	for _, path := range append(paths, filepath.Join(directory, step)) {
		if f, found := readFault(path, concerns); found {
			return meetFault(path, step, f, concerns), true
		}
	}
	return fault{}, false
}

func meetFault(path, step string, f fault, concerns func(volume string) bool) fault {
	log.Printf("fault at %s: %s", step, f.Action)
	if f.Times > 0 {
		f.Times--
		if f.Times == 0 {
			os.Remove(path)
		} else if text, err := json.Marshal(f); err == nil {
			os.WriteFile(path, text, 0o600)
		}
	}
	if f.Action == "hang" {
		for still := true; still; _, still = readFault(path, concerns) {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return f
}

func readFault(path string, concerns func(volume string) bool) (fault, bool) {
	var f fault
	text, err := os.ReadFile(path)
	if err != nil {
		return f, false
	}
	if err := json.Unmarshal(text, &f); err != nil {
		log.Printf("fault %s: %v", path, err)
		return f, false
	}
	return f, concerns(f.Volume)
}
