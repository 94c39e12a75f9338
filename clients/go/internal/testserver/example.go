package testserver

import (
	"os"
	"path/filepath"
	"testing"
)

// example stands in for a test: examples have none.
type example struct {
	testing.TB
	ends []func()
}

func (*example) Helper()                        {}
func (*example) Fatal(said ...any)              { panic(said) }
func (*example) Fatalf(format string, _ ...any) { panic(format) }
func (example *example) Cleanup(end func())     { example.ends = append(example.ends, end) }
func (example *example) TempDir() (found string) {
	found, err := os.MkdirTemp("", "tidegate")
	if err != nil {
		panic(err)
	}
	example.Cleanup(func() { _ = os.RemoveAll(found) }) // It is in the folder for such files.
	return found
}

// Example starts the service of the conformance cases for an example, where clients look for it. Who calls what it
// returns ends it.
func Example() (end func()) {
	example := &example{}
	server := Start(example, filepath.Join(Clients(), "conformance.toml"))
	for name, value := range map[string]string{"TIDEGATE_URL": server.URL, "TIDEGATE_TOKEN": "conformance-token"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
		example.Cleanup(func() { _ = os.Unsetenv(name) }) // It was set.
	}
	return func() {
		for _, end := range example.ends {
			end()
		}
	}
}
