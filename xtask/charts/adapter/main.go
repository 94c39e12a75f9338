// Command adapter says what the Prometheus adapter makes of its rules, by the adapter's own code: which series it looks for,
// under which name the metric is offered to Kubernetes, and what it asks Prometheus when an autoscaler wants the metric of pods.
//
//	adapter rules.yaml NAMESPACE POD ...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/prometheus-adapter/pkg/client"
	"sigs.k8s.io/prometheus-adapter/pkg/config"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
)

type offered struct {
	Metric string          `json:"metric"`
	Series client.Selector `json:"series"`
	Query  client.Selector `json:"query"`
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "adapter rules.yaml NAMESPACE POD ...")
		os.Exit(2)
	}
	if err := say(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func say(path, namespace string, pods []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	read, err := config.FromYAML(text)
	if err != nil {
		return err
	}
	core := schema.GroupVersion{Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{core})
	mapper.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	namers, err := naming.NamersFromConfig(read.Rules, mapper)
	if err != nil {
		return err
	}
	if len(namers) != 1 {
		return errors.New("it does not have one rule")
	}
	rule := namers[0]
	const series = "tidegate_capacity_used_ratio"
	metric, err := rule.MetricNameForSeries(client.Series{Name: series})
	if err != nil {
		return err
	}
	query, err := rule.QueryForSeries(series, schema.GroupResource{Resource: "pods"}, namespace, labels.Everything(), pods...)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(offered{metric, rule.Selector(), query})
}
