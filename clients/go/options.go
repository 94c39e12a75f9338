package tidegate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Bounds of options.
const (
	maxDeadline    = 10 * time.Minute
	maxConnections = 10_000
	maxEntries     = 1_000_000
	maxFallback    = 1_000_000_000
)

// Options says how a client asks, and what it does without an answer. [New] fills in the defaults before it
// hands them to the functions that change them.
type Options struct {
	// URL is TIDEGATE_URL, else http://127.0.0.1:4000.
	URL string
	// Token is TIDEGATE_TOKEN, else none. It is sent as `authorization: Bearer`.
	Token string
	// Deadline bounds each call, with everything that it waits for: 50 ms.
	Deadline time.Duration
	// OnFailure says what is answered without the server: FailOpen.
	OnFailure Mode
	// Fallback is the limit of [FailLocal]. Limit and Window have no default.
	Fallback Fallback
	// DenialCache is how many denials are remembered until their wait is over: 1,000. 0 keeps none.
	DenialCache int
	// DenialCacheTime is how long one is remembered at most, so that a raised limit is seen: a minute.
	DenialCacheTime time.Duration
	// Batch sends calls that wait while others are on their way together: false.
	Batch bool
	// MaxConnections is how many calls are under way at once: 64. Further calls wait within their deadline.
	MaxConnections int
	// BreakerFailures is how many failures in a row open the breaker: 5.
	BreakerFailures int
	// BreakerOpen is how long it stays open before a call tries again: a second.
	BreakerOpen time.Duration
	// OnEvent is told each result, for metrics and spans. Many goroutines call it; it must not block. What it
	// panics with is ignored.
	OnEvent func(context.Context, Event)
	// Propagate may add header fields, such as traceparent, to a request. Calls that [Options.Batch] sends together
	// have no one context, so it is not called for them. What it panics with is ignored.
	Propagate func(context.Context, http.Header)
	// TLS is for an authority or a certificate of your own. Nil: what the system trusts.
	TLS *tls.Config
	// Transport carries the requests instead of the client's own, which keeps connections: nil. It brings its own TLS.
	Transport http.RoundTripper
}

// Event is one call's result. It has no attribute's value: no client key becomes a label.
type Event struct {
	// Operation is allow, batch, refund, acquire, renew, release or explain.
	Operation string
	// Outcome is allowed or denied of a decision, done or failed of another call.
	Outcome string
	Source  Source
	Failure Failure
	// Policy speaks for the decision.
	Policy   string
	Duration time.Duration
	// Count is 1: a batch is told decision by decision.
	Count int
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func defaults() Options {
	return Options{
		URL: environment("TIDEGATE_URL", "http://127.0.0.1:4000"), Token: os.Getenv("TIDEGATE_TOKEN"),
		Deadline: 50 * time.Millisecond, OnFailure: FailOpen,
		Fallback:    Fallback{Share: 1, Key: []string{"client_id"}, Keys: 10_000},
		DenialCache: 1000, DenialCacheTime: time.Minute,
		MaxConnections: 64, BreakerFailures: 5, BreakerOpen: time.Second,
	}
}

// address reads URL.
func (options *Options) address() (*url.URL, error) {
	base, err := url.Parse(strings.TrimSuffix(options.URL, "/"))
	if err != nil {
		return nil, fmt.Errorf("tidegate: URL: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "" || base.User != nil || base.ForceQuery || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("tidegate: URL is %q; http://127.0.0.1:4000 would do", base.Redacted())
	}
	return base, nil
}

// check refuses what makes no sense.
func (options *Options) check() error {
	printable := func(r rune) bool { return r > ' ' && r < 0x7f }
	switch {
	case strings.TrimFunc(options.Token, printable) != "":
		return errors.New("tidegate: Token has characters that a header field cannot have")
	case options.TLS != nil && options.Transport != nil:
		return errors.New("tidegate: TLS is for the client's own transport, and Transport is another")
	case options.Deadline < time.Millisecond || options.Deadline > maxDeadline:
		return fmt.Errorf("tidegate: Deadline is %v; 1 ms to %v are accepted", options.Deadline, maxDeadline)
	case options.DenialCache < 0 || options.DenialCache > maxEntries:
		return fmt.Errorf("tidegate: DenialCache is %d; 0 to %d are accepted", options.DenialCache, maxEntries)
	case options.DenialCacheTime < 0:
		return errors.New("tidegate: DenialCacheTime is negative")
	case options.MaxConnections < 1 || options.MaxConnections > maxConnections:
		return fmt.Errorf("tidegate: MaxConnections is %d; 1 to %d are accepted", options.MaxConnections, maxConnections)
	case options.BreakerFailures < 1:
		return errors.New("tidegate: BreakerFailures is below 1")
	case options.BreakerOpen < time.Millisecond:
		return errors.New("tidegate: BreakerOpen is shorter than a millisecond")
	}
	switch options.OnFailure {
	case FailOpen, FailClosed:
		return nil
	case FailLocal:
		return options.Fallback.check()
	default:
		return fmt.Errorf("tidegate: OnFailure is %q; open, closed and local are accepted", options.OnFailure)
	}
}

func (limit *Fallback) check() error {
	switch {
	case limit.Limit < 1 || limit.Limit > maxFallback:
		return fmt.Errorf("tidegate: Fallback.Limit is %d; 1 to %d are accepted", limit.Limit, maxFallback)
	case limit.Window < time.Second:
		return fmt.Errorf("tidegate: Fallback.Window is %v; a second or more is accepted", limit.Window)
	case math.IsNaN(limit.Share) || limit.Share <= 0 || limit.Share > 1:
		return fmt.Errorf("tidegate: Fallback.Share is %v; above 0 and at most 1 is accepted", limit.Share)
	case len(limit.Key) == 0:
		return errors.New("tidegate: Fallback.Key names no attribute")
	case limit.Keys < 1 || limit.Keys > maxEntries:
		return fmt.Errorf("tidegate: Fallback.Keys is %d; 1 to %d are accepted", limit.Keys, maxEntries)
	}
	return nil
}

type deadlineKey struct{}

// WithDeadline gives the calls under a context a deadline of their own, which replaces the client's. The
// context's own deadline, if that is sooner, still ends them.
func WithDeadline(ctx context.Context, deadline time.Duration) context.Context {
	return context.WithValue(ctx, deadlineKey{}, min(max(deadline, time.Millisecond), maxDeadline))
}

// bounded is a context that ends with the call's deadline.
func (client *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, is := ctx.Value(deadlineKey{}).(time.Duration)
	if !is {
		deadline = client.options.Deadline
	}
	return context.WithTimeoutCause(ctx, deadline, errDeadline)
}
