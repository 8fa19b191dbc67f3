package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func init() {
	parts["etcd"] = func(_ []string) { etcdmain.Main(os.Args) }
}
