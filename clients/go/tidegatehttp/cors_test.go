package tidegatehttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

const ten = `
[[policy]]
name = "ten"
algorithm = "fixed_window"
limit = 10
window_seconds = 86400
key = ["client_id"]
`

func TestOnlyAPreflightThatTheApplicationsCORSAnswersIsGivenBack(t *testing.T) {
	server := testserver.StartWith(t, ten)
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Deadline = server.URL, 20*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/handler", func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "ok") })
	mux.HandleFunc("/cors", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Access-Control-Allow-Methods", "POST")
		writer.WriteHeader(http.StatusNoContent)
	})
	front := httptest.NewServer(Middleware(client, func(options *Options) {
		options.Key = func(*http.Request) string { return "a" }
	})(mux))
	defer front.Close()
	for _, one := range []struct {
		path      string
		preflight bool
	}{{"/handler", true}, {"/cors", false}, {"/cors", true}} {
		request, err := http.NewRequest(http.MethodOptions, front.URL+one.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if one.preflight {
			request.Header.Set("Origin", "http://shop.example")
			request.Header.Set("Access-Control-Request-Method", http.MethodPost)
		}
		response, err := front.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // There is none.
	}
	for began := time.Now(); ; {
		left, err := client.Allow(t.Context(), tidegate.Attributes{"client_id": "a"}, tidegate.Cost(0))
		if err != nil {
			t.Fatal(err)
		}
		if left.Remaining == 8 {
			return
		}
		if time.Since(began) > untilBound {
			t.Fatalf("%d units are left of ten", left.Remaining)
		}
	}
}

func TestADenialKeepsWhatTheApplicationsCORSHasSaid(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Origin", "http://shop.example")
	header := http.Header{}
	expose(header, request)
	if header.Get("Access-Control-Expose-Headers") != readable {
		t.Errorf("%v", header)
	}
	header.Set("Access-Control-Expose-Headers", "X-Own")
	expose(header, request)
	if header.Get("Access-Control-Expose-Headers") != "X-Own" {
		t.Errorf("%v", header)
	}
}

func TestAPathThatIsTooLongToBeCountedIsAnswered414(t *testing.T) {
	client, err := tidegate.New(func(options *tidegate.Options) { options.URL = testserver.Nobody(t) })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	front := Middleware(client)(http.NotFoundHandler())
	for length, status := range map[int]int{maxPathBytes: http.StatusNotFound, maxPathBytes + 1: http.StatusRequestURITooLong} {
		recorder := httptest.NewRecorder()
		front.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("a", length-1), nil))
		if recorder.Code != status {
			t.Errorf("a path of %d bytes is answered %d", length, recorder.Code)
		}
	}
}

// A request that some handler has rewritten is routed by what it is now.
func TestThePathOfARewrittenRequest(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "/shop/pay?x", nil)
	request.URL.Path = "/pay"
	if path := Path(request); path != "/shop/pay" {
		t.Errorf("below a prefix: %s", path)
	}
	request.URL.Path = "/other"
	if path := Path(request); path != "/other" {
		t.Errorf("rewritten: %s", path)
	}
	request.URL.Path, request.RequestURI = "", ""
	if path := Path(request); path != "/" {
		t.Errorf("of none: %s", path)
	}
}
