// Command etcd is upstream's etcd server, built from the version that the
// Kubernetes release itself was tested with.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
