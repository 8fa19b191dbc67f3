package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func init() {
	parts["kube-apiserver"] = func(_ []string) { os.Exit(cli.Run(app.NewAPIServerCommand())) }
}
