package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/clients/go/internal/modules"
)

// Modules returns the environment in which the client's modules are found as packages: in the module proxy of files that
// TIDEGATE_MODULES names, or in one that it makes. What they need of others is taken from this machine's module cache,
// then from its proxy.
func Modules(t testing.TB, version string) []string {
	t.Helper()
	proxy := os.Getenv("TIDEGATE_MODULES")
	if proxy == "" {
		proxy = t.TempDir()
		if err := modules.Pack(proxy, filepath.Join(Clients(), "go"), version); err != nil {
			t.Fatal(err)
		}
	}
	found, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, others, _ := strings.Cut(strings.TrimSpace(string(found)), "\n")
	known := filepath.Join(cache, "cache", "download")
	// A module cache of its own: what it had of an earlier run would be taken for this version.
	return append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+known+","+others, "GONOSUMDB=github.com/tidegate/*",
		"GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+t.TempDir(), "GOWORK=off")
}
