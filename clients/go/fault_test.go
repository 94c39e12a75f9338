package tidegate_test

// Fault 75: the server is frozen, killed, slow or full. Every call ends by its mode while the server still gives no
// answer. That the client recovers by itself is in clients/conformance.json; how much later than its deadline a call ends
// is measured in regression/clients.

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

func newClient(t testing.TB, url string, change ...func(*tidegate.Options)) *tidegate.Client {
	t.Helper()
	client, err := tidegate.New(append([]func(*tidegate.Options){func(options *tidegate.Options) {
		options.URL, options.Token = url, "conformance-token"
	}}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func startConformance(t testing.TB) *testserver.Server {
	t.Helper()
	return testserver.Start(t, filepath.Join(testserver.Clients(), "conformance.toml"))
}

// withoutBreaker makes each call ask, so that each waits for its deadline.
func withoutBreaker(options *tidegate.Options) { options.BreakerFailures = 1_000_000 }

// endsByItsMode asks, from eight callers at once, a server that gives no answer.
func endsByItsMode(t *testing.T, client *tidegate.Client) {
	t.Helper()
	var group sync.WaitGroup
	for caller := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 3 {
				decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": fmt.Sprint(caller), "resource": "ten"})
				if err != nil || decision.Source != tidegate.FromFallback {
					t.Errorf("%+v, %v", decision, err)
				}
			}
		}()
	}
	group.Wait()
}

func TestFault75EachCallOfAFaultyServerEndsByItsMode(t *testing.T) {
	for _, fault := range []string{"drip", "slow", "full", "garbage", "error_500", "endless", "endless_header"} {
		t.Run(fault, func(t *testing.T) {
			endsByItsMode(t, newClient(t, testserver.Fault(t, fault).URL, withoutBreaker))
		})
	}
	t.Run("killed", func(t *testing.T) {
		server := startConformance(t)
		server.Kill()
		endsByItsMode(t, newClient(t, server.URL, withoutBreaker))
	})
}

func TestFault75EachCallOfAFrozenServerEndsByItsMode(t *testing.T) {
	server := startConformance(t)
	for name, change := range map[string]func(*tidegate.Options){
		"each alone":      withoutBreaker,
		"in batches":      func(options *tidegate.Options) { withoutBreaker(options); options.Batch = true },
		"few connections": func(options *tidegate.Options) { withoutBreaker(options); options.MaxConnections = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, server.URL, change)
			server.Freeze()
			defer server.Thaw()
			endsByItsMode(t, client)
		})
	}
}

func TestFault75AsksNobodyWhileTheBreakerIsOpen(t *testing.T) {
	server := startConformance(t)
	client := newClient(t, server.URL, func(options *tidegate.Options) { options.BreakerOpen = time.Hour })
	server.Freeze()
	defer server.Thaw()
	for range 5 {
		_, _ = client.Allow(context.Background(), tidegate.Attributes{"client_id": "a", "resource": "ten"})
	}
	if !client.Stats().BreakerOpen {
		t.Fatal("five failures did not open the breaker")
	}
	for range 1000 {
		decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "a", "resource": "ten"})
		if err != nil || decision.Failure != tidegate.FailedBreaker {
			t.Fatalf("%+v, %v", decision, err)
		}
	}
}

func TestACallerWhoGivesUpSaysNothingAboutTheServer(t *testing.T) {
	server := startConformance(t)
	client := newClient(t, server.URL, func(options *tidegate.Options) { options.BreakerFailures = 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	decision, err := client.Allow(ctx, tidegate.Attributes{"client_id": "gone", "resource": "ten"})
	if err != nil || decision.Failure != tidegate.FailedCancelled || !decision.Allowed {
		t.Errorf("%+v, %v", decision, err)
	}
	if client.Stats().BreakerOpen {
		t.Error("a caller who gave up opened the breaker")
	}
}

func TestReleasesAPermitWhoseCallerHasGone(t *testing.T) {
	server := startConformance(t)
	client := newClient(t, server.URL, func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	attributes := tidegate.Attributes{"client_id": "gone", "resource": "slots"}
	for range 5 { // More than the limit of 2: each has to be back before the next.
		ctx, cancel := context.WithCancel(context.Background())
		permit, err := client.Acquire(ctx, attributes)
		if err != nil || !permit.Allowed || permit.Source != tidegate.FromServer {
			t.Fatalf("%+v, %v", permit, err)
		}
		cancel()
		permit.Release(ctx)
		permit.Release(ctx)
	}
	var none *tidegate.Permit
	none.Release(context.Background())
}

func TestSettlingGivesBackWhatWasNotUsed(t *testing.T) {
	client := newClient(t, startConformance(t).URL, func(options *tidegate.Options) { options.Deadline = 10 * time.Second })
	ctx := context.Background()
	attributes := tidegate.Attributes{"client_id": "stream", "resource": "ten"}
	charge, err := client.Reserve(ctx, attributes, 8)
	if err != nil || charge.Remaining != 2 {
		t.Fatalf("%+v, %v", charge, err)
	}
	charge.Settle(ctx, 3)
	charge.Settle(ctx, 0)
	if left, err := client.Allow(ctx, attributes, tidegate.Cost(0)); err != nil || left.Remaining != 7 {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestAHookThatPanicsIsNoOutage(t *testing.T) {
	var seen []tidegate.Event
	client := newClient(t, startConformance(t).URL, func(options *tidegate.Options) {
		options.Deadline = 10 * time.Second
		options.OnEvent = func(_ context.Context, event tidegate.Event) {
			seen = append(seen, event)
			panic("a hook's mistake")
		}
		options.Propagate = func(context.Context, http.Header) { panic("a hook's mistake") }
	})
	decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "hook", "resource": "ten"})
	if err != nil || !decision.Allowed || len(seen) != 1 {
		t.Fatalf("%+v, %v, %v", decision, err, seen)
	}
	event := seen[0]
	if event.Operation != "allow" || event.Outcome != "allowed" || event.Source != tidegate.FromServer || event.Policy != "ten" || event.Count != 1 || event.Duration <= 0 {
		t.Errorf("%+v", event)
	}
}
