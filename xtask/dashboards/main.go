// Command dashboards reads dashboards as Grafana's own schema has them, strictly: a field that a dashboard, a panel, its
// options or a query of Prometheus does not have is an error, and so is a field that is missing and a value of another type.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var read dashboard.Dashboard
	if err := strict(&read, text); err != nil {
		return err
	}
	return errors.Join(read.Validate(), queries(text))
}

// queries reads the queries apart: a panel's is taken for one of any data source unless it names its own.
func queries(text []byte) error {
	var board struct {
		Panels []struct {
			Type    string
			Title   string
			Targets []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return err
	}
	for _, panel := range board.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			return fmt.Errorf("%q has no queries", panel.Title)
		}
		for _, target := range panel.Targets {
			if err := strict(&prometheus.Dataquery{}, target); err != nil {
				return fmt.Errorf("%q: %w", panel.Title, err)
			}
		}
	}
	return nil
}

// strict reads a value. The schema's own functions return an empty list of errors where there are none, which is no nil.
func strict(value interface{ UnmarshalJSONStrict([]byte) error }, text []byte) error {
	err := value.UnmarshalJSONStrict(text)
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}
