// Command coredns is CoreDNS with the plugins that a cluster's DNS needs and no
// others: upstream's default set brings in the cloud SDKs of three vendors.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/whoami"
)

// The order is the order in which a query passes the plugins, whatever the order
// in the Corefile; it is upstream's plugin.cfg with the others left out.
func init() {
	dnsserver.Directives = []string{
		"cancel", "reload", "bind", "health", "ready", "prometheus", "errors", "log",
		"loadbalance", "cache", "hosts", "kubernetes", "loop", "forward", "whoami",
	}
}

func main() { coremain.Run() }
