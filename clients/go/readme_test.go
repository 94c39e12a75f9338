package tidegate_test

// The example of README.md, as its reader would try it: in a module of its own, from an empty folder to a 429.

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

const module = "github.com/tidegate/tidegate/clients/go"

func command(t *testing.T, folder string, environment []string, name string, arguments ...string) {
	t.Helper()
	command := exec.Command(name, arguments...)
	command.Dir, command.Env = folder, environment
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, said)
	}
}

func TestTheReadmesExampleEndsInA429WithinAMinute(t *testing.T) {
	began := time.Now()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- run by readme_test.go -->\n```go\n")
	program, _, complete := strings.Cut(rest, "```\n")
	address := strings.TrimPrefix(testserver.Nobody(t), "http://")
	program = strings.Replace(program, "127.0.0.1:8080", address, 1)
	if !complete || !strings.Contains(program, address) {
		t.Fatal("README.md has no example that listens on 127.0.0.1:8080")
	}
	if !strings.Contains(string(readme), "\ngo get "+module+"@v"+tidegate.Version+"\n") {
		t.Error("README.md does not say how this version is installed")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := testserver.Modules(t, "v"+tidegate.Version)
	command(t, folder, environment, "go", "mod", "init", "example.com/hello")
	command(t, folder, environment, "go", "get", module+"@v"+tidegate.Version)
	command(t, folder, environment, "go", "build", "-o", "hello", ".")

	server := testserver.StartWith(t, "# The defaults: 100 requests a minute for each client.\n")
	hello := exec.Command(filepath.Join(folder, "hello"))
	hello.Env = append(os.Environ(), "TIDEGATE_URL="+server.URL)
	hello.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := hello.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hello.Process.Kill()
		_ = hello.Wait() // It was killed.
	})
	waitFor(t, address)
	// Without the server a request is allowed, and on a busy machine one may take longer than 50 ms: so the
	// 101st may not be the one, but one soon after it is.
	for request := range 1000 {
		response, err := http.Get("http://" + address + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			if request < 100 || response.Header.Get("Retry-After") == "" {
				t.Errorf("request %d of 100 is denied, with %v", request+1, response.Header)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			return
		}
	}
	t.Error("1,000 requests and no denial")
}

// TestTheOtherModulesAreFoundByTheirVersion gets modules that need this one, as their users get both: a `replace` in
// their go.mod does not count there.
func TestTheOtherModulesAreFoundByTheirVersion(t *testing.T) {
	environment := testserver.Modules(t, "v"+tidegate.Version)
	for _, name := range []string{"tidegategrpc", "tidegateotel"} {
		folder := t.TempDir()
		program := "package main\n\nimport _ \"" + module + "/" + name + "\"\n\nfunc main() {}\n"
		if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, folder, environment, "go", "mod", "init", "example.com/hello")
		command(t, folder, environment, "go", "get", module+"/"+name+"@v"+tidegate.Version)
		// Finds every package, and compiles none: its own tests do.
		command(t, folder, environment, "go", "list", "-deps", ".")
	}
}

// waitFor waits until somebody listens.
func waitFor(t *testing.T, address string) {
	t.Helper()
	for began := time.Now(); ; {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}
