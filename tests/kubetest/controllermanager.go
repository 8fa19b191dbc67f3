package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func init() {
	parts["kube-controller-manager"] = func(_ []string) { os.Exit(cli.Run(app.NewControllerManagerCommand())) }
}
