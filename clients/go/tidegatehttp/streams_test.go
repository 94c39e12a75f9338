package tidegatehttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

func TestAClientThatGoesAwayInTheMiddleSettlesToo(t *testing.T) {
	server := testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
	client := patient(t, server.URL)
	who := tidegate.Attributes{"client_id": "gone", "resource": "three"}
	front := httptest.NewServer(Middleware(client, func(options *Options) {
		options.Key = func(*http.Request) string { return "gone" }
		options.Attributes = func(*http.Request) tidegate.Attributes { return tidegate.Attributes{"resource": "three"} }
		options.Cost = func(*http.Request) int64 { return 3 }
	})(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		Settle(request.Context(), 1)
		for request.Context().Err() == nil {
			_, _ = io.WriteString(writer, "piece\n")
			_ = http.NewResponseController(writer).Flush()
		}
	})))
	defer front.Close()
	response, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // In the middle: that ends the connection.
	// Of the three units that it reserved one was used.
	for began := time.Now(); ; {
		left, err := client.Allow(context.Background(), who, tidegate.Cost(0))
		if err != nil {
			t.Fatal(err)
		}
		if left.Remaining == 2 {
			return
		}
		if time.Since(began) > untilBound {
			t.Fatalf("%d units are left, not 2", left.Remaining)
		}
	}
}

func patient(t *testing.T, url string) *tidegate.Client {
	t.Helper()
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Token, options.Deadline = url, "conformance-token", 10*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestALeakyBucketHoldsRequestsBack(t *testing.T) {
	client := patient(t, testserver.StartWith(t, testserver.Leaky).URL)
	fine := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "ok") })
	four := func(key string, longest time.Duration) time.Duration {
		front := httptest.NewServer(Middleware(client, func(options *Options) {
			options.Key = func(*http.Request) string { return key }
			options.MaxDelay = longest
		})(fine))
		defer front.Close()
		began := time.Now()
		for range 4 {
			response, err := http.Get(front.URL)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", response, err)
			}
			_ = response.Body.Close() // It is short.
		}
		return time.Since(began)
	}
	// Ten a second leave the bucket: the fourth waits for three before it.
	if took := four("held", time.Second); took < 300*time.Millisecond {
		t.Errorf("four requests took %v", took)
	}
	// Held back for a millisecond at most, it is not waited for; a busy machine may take as long by itself.
	for began := time.Now(); four(time.Now().String(), time.Millisecond) >= 300*time.Millisecond; {
		if time.Since(began) > untilBound {
			t.Fatal("requests are held back for longer than MaxDelay")
		}
	}
}
