// Command csi-rbd-lab is the node part of the lab's CSI driver. It does what ceph-csi does, in its
// order, on its paths and with its error texts, and can fail, hang or crash on request at each step.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type options struct {
	driver      string
	nodeID      string
	kubeletRoot string
	config      string
	faults      string
	inUseDelay  time.Duration
	cephcsi     string
}

const ourName = "csi-rbd-lab"

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if name := filepath.Base(os.Args[0]); name != ourName {
		os.Exit(asProgram(name, os.Args[1:]))
	}
	var o options
	flag.StringVar(&o.driver, "driver", "rbd.csi.ceph.com", "name of the driver")
	flag.StringVar(&o.nodeID, "node-id", "", "name of the node")
	flag.StringVar(&o.kubeletRoot, "kubelet-root", "/var/lib/kubelet", "kubelet's root directory")
	flag.StringVar(&o.config, "config", "/etc/ceph-csi-config/config.json", "clusters, as ceph-csi writes them")
	flag.StringVar(&o.faults, "faults", "/run/csi-rbd-lab/faults", "directory of faults, a file a step")
	flag.DurationVar(&o.inUseDelay, "in-use-delay", time.Second,
		"first pause of the in-use check; ceph-csi's second makes 49 s over ten looks")
	flag.StringVar(&o.cephcsi, "cephcsi", "", "a real ceph-csi to run in place of our node half")
	flag.Parse()
	if o.nodeID == "" {
		log.Fatal("csi-rbd-lab: --node-id is missing")
	}

	endpoint := filepath.Join(o.kubeletRoot, "plugins", o.driver, "csi.sock")
	if o.cephcsi != "" {
		go runCephCSI(o, endpoint)
		waitForSocket(endpoint)
	} else {
		server := grpc.NewServer(grpc.UnaryInterceptor(logged))
		csi.RegisterIdentityServer(server, &identity{driver: o.driver})
		csi.RegisterNodeServer(server, newNode(o))
		go serve(server, endpoint)
	}

	register := grpc.NewServer()
	registration.RegisterRegistrationServer(register, &registrar{driver: o.driver, endpoint: endpoint})
	serve(register, filepath.Join(o.kubeletRoot, "plugins_registry", o.driver+"-reg.sock"))
}

func serve(server *grpc.Server, socket string) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", socket)
	log.Fatal(server.Serve(listener))
}

// logged writes a line before and after each call that changes something, never its secrets.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	quiet := method == "Probe" || method == "NodeGetCapabilities" || method == "NodeGetVolumeStats"
	if !quiet {
		log.Printf("GRPC call: %s %s", info.FullMethod, volumeOf(request))
	}
	response, err := call(ctx, request)
	if err != nil {
		log.Printf("GRPC error: %s: %v", method, err)
	} else if !quiet {
		log.Printf("GRPC response: %s", method)
	}
	return response, err
}

func volumeOf(request any) string {
	if named, ok := request.(interface{ GetVolumeId() string }); ok {
		return named.GetVolumeId()
	}
	return ""
}

type identity struct {
	csi.UnimplementedIdentityServer
	driver string
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.driver, VendorVersion: "lab"}, nil
}

func (i *identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrar answers kubelet's plugin watcher: the driver needs no sidecar.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver   string
	endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Printf("kubelet refused the registration: %s", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
