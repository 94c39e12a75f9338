package rate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/rate"
)

const policies = `
[[policy]]
name = "bucket"
algorithm = "token_bucket"
limit = 4
window_seconds = 2
burst = 3
match = { resource = "bucket" }

[[policy]]
name = "hour"
algorithm = "token_bucket"
limit = 2
window_seconds = 3600
match = { resource = "hour" }

[[policy]]
name = "queue"
algorithm = "leaky_bucket"
limit = 100
window_seconds = 3600
burst = 100
match = { resource = "queue" }
`

func connect(t *testing.T) *tidegate.Client {
	t.Helper()
	server := testserver.StartWith(t, policies)
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.Deadline = server.URL, 10*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func limiters(t *testing.T) func(resource string) *rate.Limiter {
	t.Helper()
	client := connect(t)
	return func(resource string) *rate.Limiter {
		return rate.NewLimiter(rate.Inf, 0, client, tidegate.Attributes{"client_id": t.Name(), "resource": resource})
	}
}

func TestSaysWhatThePolicySays(t *testing.T) {
	limiter := limiters(t)("bucket")
	if burst, limit, tokens := limiter.Burst(), limiter.Limit(), limiter.Tokens(); burst != 3 || limit != rate.Every(time.Second/2) || tokens != 3 {
		t.Errorf("burst %d, limit %v, tokens %v", burst, limit, tokens)
	}
	if limit := limiters(t)("unlimited").Limit(); limit != rate.Inf {
		t.Errorf("without a policy the limit is %v", limit)
	}
}

func TestItsOwnNumbersHoldWhereNoPolicyApplies(t *testing.T) {
	client := connect(t)
	limiter := rate.NewLimiter(rate.Every(time.Hour), 2, client, tidegate.Attributes{"client_id": t.Name(), "resource": "own"})
	if burst, limit := limiter.Burst(), limiter.Limit(); burst != 2 || limit != rate.Every(time.Hour) {
		t.Errorf("burst %d, limit %v", burst, limit)
	}
	if !limiter.AllowN(time.Now(), 2) || limiter.Allow() {
		t.Error("not two of three are allowed")
	}
	if none := rate.NewLimiter(0, 5, client, tidegate.Attributes{"client_id": t.Name(), "resource": "none"}); none.Allow() {
		t.Error("a rate of zero allows an event")
	}
	// A thousand come with the request, and the policy has two.
	policys := rate.NewLimiter(1_000, 1_000, client, tidegate.Attributes{"client_id": t.Name(), "resource": "hour"})
	if burst := policys.Burst(); burst != 2 {
		t.Errorf("a policy of 2 lets %d through at once", burst)
	}
}

func TestAReservationOfItsOwnNumbersIsGivenBack(t *testing.T) {
	limiter := rate.NewLimiter(rate.Every(time.Hour), 1, connect(t), tidegate.Attributes{"client_id": t.Name()})
	began := time.Now()
	// A bucket has no delay, and what has happened is not given back.
	limiter.Reserve().CancelAt(began)
	taken := limiter.Reserve()
	if !taken.OK() || limiter.Allow() {
		t.Errorf("after one was given back, one is left: %v", taken.OK())
	}
}

func TestAllowTakesAndDenies(t *testing.T) {
	limiter := limiters(t)("hour")
	if !limiter.Allow() || !limiter.AllowN(time.Now(), 1) || limiter.Allow() {
		t.Error("not two of three are allowed")
	}
}

func TestWaitsUntilThereIsRoom(t *testing.T) {
	limiter := limiters(t)("bucket")
	began := time.Now()
	for range 5 {
		if err := limiter.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if passed := time.Since(began); passed < time.Second {
		t.Errorf("5 events with a burst of 3 and 2 a second took %v", passed)
	}
}

func TestWaitSaysWhenItWouldBeTooLong(t *testing.T) {
	limiter := limiters(t)("hour")
	if err := limiter.WaitN(context.Background(), 3); err == nil || !strings.Contains(err.Error(), "burst 2") {
		t.Errorf("3 of at most 2: %v", err)
	}
	limiter.AllowN(time.Now(), 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := limiter.Wait(ctx); err == nil || !strings.Contains(err.Error(), "would exceed context deadline") {
		t.Errorf("half an hour within a minute: %v", err)
	}
	cancel()
	if err := limiter.Wait(ctx); err != context.Canceled {
		t.Errorf("an ended context: %v", err)
	}
}

func TestReservesAPlaceInTheQueue(t *testing.T) {
	limiter := limiters(t)("queue")
	first := limiter.ReserveN(time.Now(), 50)
	second := limiter.Reserve()
	if !first.OK() || !second.OK() || second.Delay() < 30*time.Second || second.DelayFrom(time.Now().Add(time.Hour)) != 0 {
		t.Fatalf("%v after %v", second.Delay(), first.Delay())
	}
	second.Cancel()
	second.Cancel()
	third := limiter.Reserve()
	if !third.OK() || third.Delay() > second.Delay()+500*time.Millisecond {
		t.Errorf("%v after a cancelled %v", third.Delay(), second.Delay())
	}
	ctx, cancel := context.WithCancel(context.Background())
	before := limiter.Tokens()
	waits := make(chan error)
	go func() { waits <- limiter.Wait(ctx) }()
	for limiter.Tokens() >= before { // Until the waiting one has its place.
	}
	cancel()
	if err := <-waits; err != context.Canceled {
		t.Errorf("a cancelled wait: %v", err)
	}
	if limiter.Tokens() < before {
		t.Error("a cancelled wait keeps its place")
	}
}

func TestADeniedReservationIsNotOK(t *testing.T) {
	limiter := limiters(t)("hour")
	limiter.AllowN(time.Now(), 2)
	denied := limiter.Reserve()
	if denied.OK() || denied.Delay() != rate.InfDuration {
		t.Errorf("%v, %v", denied.OK(), denied.Delay())
	}
	denied.Cancel()
	if limiter.Tokens() != 0 {
		t.Error("cancelling a denied reservation gave something back")
	}
}
