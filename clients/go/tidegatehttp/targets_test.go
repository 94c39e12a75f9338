package tidegatehttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

const reached = "the handler"

// targets is clients/targets.json.
type targets struct {
	Config  string         `json:"config"`
	Parts   map[string]any `json:"parts"`
	Targets []*struct {
		Target  string            `json:"target"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Reached []string          `json:"reached"`
	} `json:"targets"`
}

// written is a target with its parts written out, below a prefix.
func (targets *targets) written(target, prefix string) string {
	whole := strings.ReplaceAll(strings.ReplaceAll(target, "{p}", prefix), "{P}", strings.ToUpper(prefix))
	for name, part := range targets.Parts {
		whole = strings.ReplaceAll(whole, name, testserver.Text(part))
	}
	return whole
}

// answer is what became of a request.
type answer struct {
	status           int
	problem, reached bool
}

func ask(t *testing.T, front *httptest.Server, target, method string, headers map[string]string) answer {
	t.Helper()
	connection, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	// Texts of the document are Latin-1: a character is a byte.
	sent := []byte{}
	for _, character := range target {
		sent = append(sent, byte(character))
	}
	if method == "" {
		method = http.MethodGet
	}
	text := method + " " + string(sent) + " HTTP/1.1\r\nHost: x.example\r\nConnection: close\r\n"
	for name, value := range headers {
		text += name + ": " + value + "\r\n"
	}
	if _, err := io.WriteString(connection, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	received, _ := io.ReadAll(connection) // A server may reset what it refuses.
	found := answer{
		problem: bytes.Contains(received, []byte("application/problem+json")),
		reached: bytes.Contains(received, []byte(reached)),
	}
	_, _ = fmt.Sscanf(string(received), "HTTP/1.1 %d", &found.status)
	return found
}

// counted expects that no handler is reached uncounted, and says if one is reached at all.
func counted(t *testing.T, front *httptest.Server, target, method string, headers map[string]string) bool {
	t.Helper()
	skipping := map[string]string{"x-skip": "1"}
	for name, value := range headers {
		skipping[name] = value
	}
	free, limited := ask(t, front, target, method, skipping), ask(t, front, target, method, headers)
	shown := fmt.Sprintf("%q: %+v and %+v", target[:min(len(target), 60)], free, limited)
	if limited.reached {
		t.Error("reached, and not counted: " + shown)
	}
	if limited.problem && limited.status != http.StatusTooManyRequests {
		t.Error("not its user's mistake: " + shown)
	}
	if free.reached && limited.status != http.StatusTooManyRequests {
		t.Error("reached, and not denied: " + shown)
	}
	return free.reached
}

func payMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/pay", func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, reached) })
	return mux
}

// byPath routes by the decoded path, as routers do that do not use [http.ServeMux].
func byPath(pay http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/pay" || request.URL.Path == "/api/pay" {
			_, _ = io.WriteString(writer, reached)
			return
		}
		pay.ServeHTTP(writer, request)
	})
}

func TestNoTargetReachesAHandlerUncounted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testserver.Clients(), "targets.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document targets
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	server := testserver.StartWith(t, document.Config)
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Deadline = server.URL, 20*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limited := func(name string, handler http.Handler) http.Handler {
		return Middleware(client, func(options *Options) {
			options.Key = func(*http.Request) string { return name }
			options.Skip = func(request *http.Request) bool { return request.Header.Get("x-skip") != "" }
		})(handler)
	}
	routers := map[string]func(mounted bool) http.Handler{
		"go-mux": func(mounted bool) http.Handler {
			mux := payMux()
			if mounted {
				mux.Handle("/api/", http.StripPrefix("/api", limited("mounted", payMux())))
				return mux
			}
			mux.Handle("/api/", http.StripPrefix("/api", payMux()))
			return limited("root", mux)
		},
		"go-path": func(mounted bool) http.Handler {
			if mounted {
				return http.StripPrefix("/api", limited("mounted", byPath(http.NotFoundHandler())))
			}
			return limited("root", byPath(http.NotFoundHandler()))
		},
	}
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			root, mounted := httptest.NewServer(router(false)), httptest.NewServer(router(true))
			defer root.Close()
			defer mounted.Close()
			for _, one := range document.Targets {
				target, below := document.written(one.Target, ""), document.written(one.Target, "/api")
				is := counted(t, root, target, one.Method, one.Headers)
				if is != slices.Contains(one.Reached, name) {
					t.Errorf("%s %q: reaches the handler: %v", one.Method, one.Target, is)
				}
				counted(t, root, below, one.Method, one.Headers)
				if below != target {
					counted(t, mounted, below, one.Method, one.Headers)
				}
			}
		})
	}
}
