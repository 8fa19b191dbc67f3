package main

import (
	"os"

	"github.com/spf13/pflag"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func init() {
	parts["kubectl"] = kubectl
}

// kubectl applies manifests as an administrator would, kustomize included.
func kubectl(_ []string) {
	// The other parts have registered flags that its command would refuse to merge.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
