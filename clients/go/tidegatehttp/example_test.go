package tidegatehttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/tidegatehttp"
)

// shop is a handler with a limit of three requests an hour for each client.
func shop(client *tidegate.Client) http.Handler {
	limited := tidegatehttp.Middleware(client, func(options *tidegatehttp.Options) {
		options.Key = func(request *http.Request) string { return request.Header.Get("X-Api-Key") }
		options.Attributes = func(*http.Request) tidegate.Attributes { return tidegate.Attributes{"resource": "three"} }
	})
	return limited(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(writer, "ok") // A client that has gone needs no answer.
	}))
}

func ExampleMiddleware() {
	defer testserver.Example()()
	client, err := tidegate.New(func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	if err != nil {
		panic(err)
	}
	defer client.Close()
	server := httptest.NewServer(shop(client))
	defer server.Close()
	for range 4 {
		response, err := http.Get(server.URL)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close() // Nothing is left to fail.
		fmt.Println(response.StatusCode, response.Header.Get("RateLimit"))
	}
	// Output:
	// 200 "three";r=2;t=1200
	// 200 "three";r=1;t=1200
	// 200 "three";r=0;t=1200
	// 429 "three";r=0;t=1200
}

func ExampleNewTransport() {
	defer testserver.Example()()
	client, err := tidegate.New(func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	if err != nil {
		panic(err)
	}
	defer client.Close()
	server := httptest.NewServer(shop(client))
	defer server.Close()
	// It waits a second at most: a denial that asks for more is returned.
	paced := &http.Client{Transport: tidegatehttp.NewTransport(func(options *tidegatehttp.TransportOptions) {
		options.MaxWait = time.Second
	})}
	for range 4 {
		response, err := paced.Get(server.URL)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close() // Nothing is left to fail.
		fmt.Println(response.StatusCode)
	}
	// Output:
	// 200
	// 200
	// 200
	// 429
}
