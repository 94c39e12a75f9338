//go:build tools

// Package tools pins what Helm and kubeconform are built of; `cargo xtask charts` builds them.
package tools

import (
	_ "github.com/yannh/kubeconform/cmd/kubeconform"
	_ "helm.sh/helm/v3/cmd/helm"
)
