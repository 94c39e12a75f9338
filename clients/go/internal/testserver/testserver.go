// Package testserver starts what the tests ask: the real binary, and servers that misbehave.
package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startBound is how long a server may take to say where it listens.
const startBound = 60 * time.Second

// Leaky is a configuration whose bucket lets ten a second out, and takes ten.
const Leaky = "[[policy]]\nname = \"leaky\"\nalgorithm = \"leaky_bucket\"\nlimit = 100\nwindow_seconds = 10\nburst = 10\nkey = [\"client_id\"]\n"

// Root is the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../..")
}

// Clients is the folder of all clients.
func Clients() string { return filepath.Join(Root(), "clients") }

func binary() string {
	if path := os.Getenv("TIDEGATE_BIN"); path != "" {
		return path
	}
	return filepath.Join(Root(), "target/debug/tidegate")
}

// Server is a process that listens.
type Server struct {
	// URL is where.
	URL string

	t       testing.TB
	command *exec.Cmd
	data    string
	config  string
	// log is the file of its log, in which each request is a line; none: the test's own.
	log string
}

// Start starts `tidegate serve` with a configuration file and ends it with the test.
func Start(t testing.TB, config string) *Server {
	t.Helper()
	server := &Server{t: t, data: t.TempDir(), config: config}
	server.run("127.0.0.1:0")
	t.Cleanup(server.stop)
	return server
}

// StartWith is Start with the text of a configuration.
func StartWith(t testing.TB, text string) *Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidegate.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, path)
}

// StartLogging is Start with a log in which each request is a line, and returns what has been logged.
func StartLogging(t testing.TB, config string) (*Server, func() string) {
	t.Helper()
	server := &Server{t: t, data: t.TempDir(), config: config, log: filepath.Join(t.TempDir(), "log")}
	server.run("127.0.0.1:0")
	t.Cleanup(server.stop)
	return server, func() string {
		text, err := os.ReadFile(server.log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func (server *Server) run(listen string) {
	server.t.Helper()
	server.command = exec.Command(binary(), "serve", "--config", server.config, "--data-dir", server.data,
		"--http-listen", listen, "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0", "--intake-listen", "off")
	server.command.Stderr = os.Stderr
	if server.log != "" {
		server.command.Args = append(server.command.Args, "--log-level", "debug")
		log, err := os.OpenFile(server.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			server.t.Fatal(err)
		}
		defer func() { _ = log.Close() }() // The process has its own.
		server.command.Stderr = log
	}
	server.URL = begin(server.t, server.command, regexp.MustCompile(`https?://127\.0\.0\.1:\d+`))
}

// Freeze stops the process where it is, and returns when all of its threads stand still.
func (server *Server) Freeze() {
	server.t.Helper()
	server.signal(syscall.SIGSTOP)
	for began := time.Now(); !server.stands(); {
		if time.Since(began) > startBound {
			server.t.Fatal("the server does not stand still")
		}
	}
}

func (server *Server) stands() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.command.Process.Pid))
	if err != nil || len(threads) == 0 {
		server.t.Fatalf("the server's threads cannot be read: %v", err)
	}
	return !slices.ContainsFunc(threads, func(thread string) bool {
		text, err := os.ReadFile(thread)
		return err == nil && !strings.Contains(string(text), ") T ")
	})
}

// Thaw lets it go on.
func (server *Server) Thaw() { server.signal(syscall.SIGCONT) }

// Heal lets a server that misbehaves be well from now on.
func (server *Server) Heal() { server.signal(syscall.SIGUSR1) }

// Kill ends it at once.
func (server *Server) Kill() {
	server.signal(syscall.SIGKILL)
	_ = server.command.Wait() // It was killed.
}

// Restart starts it again, on the same port and data.
func (server *Server) Restart() { server.run(strings.TrimPrefix(server.URL, "http://")) }

func (server *Server) signal(signal syscall.Signal) {
	server.t.Helper()
	if err := server.command.Process.Signal(signal); err != nil {
		server.t.Fatal(err)
	}
}

func (server *Server) stop() {
	if server.command.ProcessState == nil {
		_ = server.command.Process.Kill()
		_ = server.command.Wait() // It was killed.
	}
}

// Fault starts a server that misbehaves as clients/conformance.json says.
func Fault(t testing.TB, name string) *Server {
	t.Helper()
	server := &Server{t: t, command: exec.Command("python3", filepath.Join(Clients(), "faulty.py"), name)}
	server.command.Stderr = os.Stderr
	server.URL = "http://" + strings.TrimPrefix(begin(t, server.command, regexp.MustCompile(`listening \S+`)), "listening ")
	t.Cleanup(server.stop)
	return server
}

// begin starts a process and returns the first text of its output that looks like its address.
func begin(t testing.TB, command *exec.Cmd, address *regexp.Regexp) string {
	t.Helper()
	// A test that is killed leaves no server behind.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "TIDEGATE_") })
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if text := address.FindString(lines.Text()); text != "" {
				found <- text
				break
			}
		}
		close(found)
		_, _ = io.Copy(io.Discard, output) // What it says later is not asked for.
	}()
	select {
	case text, is := <-found:
		if !is {
			t.Fatal("the server ended before it listened")
		}
		return text
	case <-time.After(startBound):
		t.Fatal("the server does not say where it listens")
	}
	return ""
}

// Nobody is an address at which nobody listens.
func Nobody(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}
