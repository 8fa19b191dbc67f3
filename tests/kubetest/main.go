// Command kubetest is a Kubernetes control plane for tests in one binary.
//
// The first argument names the part to be (kube-apiserver, etcd, kube-controller-manager, kube-scheduler, kwok, kubectl,
// certs);
// the rest are that part's own flags. A link with a part's name is that part. Feature gates and flags are process-wide in Kubernetes, so each part is its
// own process. When KUBETEST_LIFELINE is set, the process ends as soon as its standard input closes: nothing
// outlives the tests, however they end.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

var parts = map[string]func(args []string){
	"certs": certs,
}

func lifeline() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func main() {
	if name := filepath.Base(os.Args[0]); parts[name] != nil {
		os.Args = append([]string{os.Args[0], name}, os.Args[1:]...)
	}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubetest PART [FLAGS]; parts:")
		for name := range parts {
			fmt.Fprintln(os.Stderr, "  "+name)
		}
		os.Exit(2)
	}
	if os.Getenv("KUBETEST_LIFELINE") != "" {
		go lifeline()
	}
	part := os.Args[1]
	os.Args = append([]string{filepath.Join(filepath.Dir(os.Args[0]), part)}, os.Args[2:]...)
	parts[part](os.Args[1:])
}
