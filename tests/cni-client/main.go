// A CNI client for tests: libcni, as container runtimes use it, with a cache of its own, so that an ordinary user can run it.
//
//	cni-client add|check|del|gc|status LIST PLUGINS CACHE CONTAINER
//
// LIST is the file of a network configuration list, PLUGINS the folder of the plugins, CACHE the folder for results. GC keeps the
// attachment of CONTAINER. CNI_ARGS goes to the plugins as it is.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

const interfaceName = "eth0"

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: cni-client add|check|del|gc|status LIST PLUGINS CACHE CONTAINER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command, path, plugins, cache, container string) error {
	list, err := libcni.NetworkConfFromFile(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	client := libcni.NewCNIConfigWithCacheDir([]string{plugins}, cache, nil)
	if _, err := client.ValidateNetworkList(ctx, list); err != nil {
		return err
	}
	attachment := &libcni.RuntimeConf{
		ContainerID: container,
		NetNS:       "/run/netns/none",
		IfName:      interfaceName,
		Args:        arguments(),
	}
	switch command {
	case "add":
		result, err := client.AddNetworkList(ctx, list, attachment)
		if err != nil {
			return err
		}
		return result.Print()
	case "check":
		return client.CheckNetworkList(ctx, list, attachment)
	case "del":
		return client.DelNetworkList(ctx, list, attachment)
	case "gc":
		valid := []types.GCAttachment{{ContainerID: container, IfName: interfaceName}}
		return client.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	case "status":
		return client.GetStatusNetworkList(ctx, list)
	}
	return fmt.Errorf("unknown command %q", command)
}

func arguments() [][2]string {
	var pairs [][2]string
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if name, value, found := strings.Cut(pair, "="); found {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	return pairs
}
