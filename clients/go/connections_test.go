package tidegate_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// metric is the sum of the lines of the service's metrics page that begin with a name and have some text.
func metric(t *testing.T, url, name, has string) float64 {
	t.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // It is read whole.
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, name) || !strings.Contains(line, has) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// peek asks so often, some at once, each without spending.
func peek(t *testing.T, client *tidegate.Client, atOnce, each int) {
	t.Helper()
	var group sync.WaitGroup
	for range atOnce {
		group.Add(1)
		go func() {
			defer group.Done()
			for range each {
				decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "a", "resource": "ten"}, tidegate.Peek())
				if err != nil || decision.Source != tidegate.FromServer {
					t.Errorf("%+v, %v", decision, err)
				}
			}
		}()
	}
	group.Wait()
}

func TestKeepsConnections(t *testing.T) {
	for _, atOnce := range []int{1, 16} {
		server := testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
		client := patientClient(t, server.URL, false, func(options *tidegate.Options) {
			// Else net/http may dial once more for a call that then takes a connection which has become idle.
			options.MaxConnections = atOnce
		})
		peek(t, client, atOnce, 100)
		// One more reads the metrics.
		if made := metric(t, server.URL, "tidegate_connections_accepted_total", `"api"`); made < 2 || made > float64(atOnce+1) {
			t.Errorf("%v connections for %d calls, %d at once", made-1, 100*atOnce, atOnce)
		}
	}
}

func TestBatchingSendsFewerRequests(t *testing.T) {
	server := testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
	peek(t, patientClient(t, server.URL, true), 200, 5)
	if sent := metric(t, server.URL, "tidegate_http_requests_total", `"/v1/decisions"`); sent < 1 || sent > 500 {
		t.Errorf("%v requests for 1,000 calls, 200 at once", sent)
	}
}

func TestMoreThanAThousandRequestsAreAskedInParts(t *testing.T) {
	server := testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
	requests := make([]tidegate.Request, 2500)
	for index := range requests {
		requests[index] = tidegate.Ask(tidegate.Attributes{"client_id": strconv.Itoa(index), "resource": "ten"})
	}
	decisions, err := patientClient(t, server.URL, false).Batch(context.Background(), requests)
	if err != nil || len(decisions) != len(requests) {
		t.Fatalf("%d decisions, %v", len(decisions), err)
	}
	for index, decision := range decisions {
		if decision.Source != tidegate.FromServer || decision.Remaining != 9 {
			t.Fatalf("request %d: %+v", index, decision)
		}
	}
	if sent := metric(t, server.URL, "tidegate_http_requests_total", `"/v1/decisions"`); sent != 3 {
		t.Errorf("%v requests for 2,500 in parts of 1,000", sent)
	}
}

func patientClient(t *testing.T, url string, batch bool, change ...func(*tidegate.Options)) *tidegate.Client {
	t.Helper()
	client, err := tidegate.New(append(change, patient, func(options *tidegate.Options) {
		options.URL, options.Token, options.Batch = url, "conformance-token", batch
		options.Deadline = time.Minute
	})...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
