package tidegate_test

// Fault 75: the server is frozen, killed, slow or full. An answer comes within the deadline. What is answered, and that
// the client recovers by itself, is in clients/conformance.json; here is when.

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// late is how much later than a sleep of the same length the 99th percentile may be.
const late = 5 * time.Millisecond

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

// times are how long calls of an action took, sorted, by several callers at once.
func times(callers, each int, action func(caller int)) []time.Duration {
	var mutex sync.Mutex
	var group sync.WaitGroup
	var took []time.Duration
	for caller := range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			for range each {
				began := time.Now()
				action(caller)
				passed := time.Since(began)
				mutex.Lock()
				took = append(took, passed)
				mutex.Unlock()
			}
		}()
	}
	group.Wait()
	slices.Sort(took)
	return took
}

func percentile99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

// withoutBreaker makes each call ask, so that each waits for its deadline.
func withoutBreaker(options *tidegate.Options) { options.BreakerFailures = 1_000_000 }

// answersInTime asks, from eight callers, a server that gives no answer. In each round others only sleep for the deadline:
// they say how late this machine is by itself. A round in which the calls are later than that is late; the machine may
// make some so, and the proof is that good rounds prevail.
func answersInTime(t *testing.T, client *tidegate.Client) {
	t.Helper()
	ahead, said := 0, ""
	for ahead < 3 && ahead > -7 {
		slept := make(chan []time.Duration)
		go func() {
			slept <- times(8, 13, func(int) { time.Sleep(50 * time.Millisecond) })
		}()
		took := times(8, 13, func(caller int) {
			decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": fmt.Sprint(caller), "resource": "ten"})
			if err != nil || decision.Source != tidegate.FromFallback {
				t.Errorf("%+v, %v", decision, err)
			}
		})
		machine := percentile99(<-slept)
		said += fmt.Sprintf("\np50 %v, p99 %v; of sleeping for 50 ms p99 %v", took[len(took)/2], percentile99(took), machine)
		if percentile99(took) <= machine+late {
			ahead++
		} else {
			ahead--
		}
	}
	if t.Log(said); ahead < 0 {
		t.Error("the calls are late")
	}
}

func TestFault75FaultyServersCostNoMoreThanTheDeadline(t *testing.T) {
	for _, fault := range []string{"drip", "slow", "full", "garbage", "error_500", "endless", "endless_header"} {
		t.Run(fault, func(t *testing.T) {
			answersInTime(t, newClient(t, testserver.Fault(t, fault).URL, withoutBreaker))
		})
	}
	t.Run("killed", func(t *testing.T) {
		server := startConformance(t)
		server.Kill()
		answersInTime(t, newClient(t, server.URL, withoutBreaker))
	})
}

func TestFault75AnswersWithinTheDeadlineWhileTheServerIsFrozen(t *testing.T) {
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
			answersInTime(t, client)
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
