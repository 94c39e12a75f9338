// Package rate has the Limiter of golang.org/x/time/rate, with its counters in a Tidegate service: all processes
// share one limit, and it outlives them.
//
//	limiter := rate.NewLimiter(rate.Limit(10), 20, client, tidegate.Attributes{"client_id": "mailer", "resource": "mail"})
//	if err := limiter.Wait(ctx); err != nil { ... }
//
// The numbers hold where no policy of the service applies; where one does, they are the policy's. So there is no SetLimit
// and no SetBurst. Times that are given to
// AllowN and its like are ignored: the service's clock counts. docs: MIGRATION.md in the module's folder.
package rate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/fields"
)

// Limit is a rate in events per second.
type Limit float64

// Inf is the rate where nothing limits.
const Inf = Limit(math.MaxFloat64)

// InfDuration is the delay of a reservation that is not OK.
const InfDuration = time.Duration(math.MaxInt64)

// Every converts the time between two events to a rate.
func Every(interval time.Duration) Limit {
	if interval <= 0 {
		return Inf
	}
	return 1 / Limit(interval.Seconds())
}

// Limiter asks a service for the events of one counter. It is safe for use by many goroutines.
type Limiter struct {
	client     *tidegate.Client
	attributes tidegate.Attributes
	// own are the numbers, as an option.
	own []tidegate.Option
}

// NewLimiter makes a limiter of the events with these attributes: r a second, b at once, where no policy of the service
// applies. With Inf, and above ten million a second, it has no numbers of its own.
func NewLimiter(r Limit, b int, client *tidegate.Client, attributes tidegate.Attributes) *Limiter {
	limiter := &Limiter{client: client, attributes: attributes}
	if r <= mostPerSecond {
		limiter.own = []tidegate.Option{tidegate.WithLimits(limits(float64(r), b))}
	}
	return limiter
}

// What the service takes.
const (
	mostPerSecond  = 10_000_000
	mostUnits      = 1_000_000_000
	longestSeconds = 90 * 24 * 60 * 60
)

// limits writes numbers as the service takes them. A rate that is not above zero allows no events, nor does a burst that
// is not.
func limits(rate float64, burst int) tidegate.Limits {
	own := tidegate.Limits{WindowSeconds: 1, Algorithm: "token_bucket"}
	if rate > 0 && burst > 0 {
		own.Limit, own.WindowSeconds = fraction(rate)
		own.Burst = min(int64(burst), mostUnits)
	}
	return own
}

// fraction writes a rate as whole units in whole seconds: as it is where that takes an hour at most, else to a millionth.
func fraction(rate float64) (units, seconds int64) {
	for seconds := int64(1); seconds <= 3_600; seconds++ {
		units := math.Round(rate * float64(seconds))
		if units >= 1 && math.Abs(units-rate*float64(seconds)) <= 1e-9*units {
			return int64(units), seconds
		}
	}
	window := min(math.Ceil(1e6/rate), longestSeconds)
	if rate >= 1 {
		return int64(math.Round(rate * window)), int64(window)
	}
	whole := max(math.Floor(rate*window), 1)
	return int64(whole), int64(min(math.Round(whole/rate), longestSeconds))
}

// options are those of a call about n events.
func (limiter *Limiter) options(n int) []tidegate.Option {
	return append(slices.Clip(limiter.own), tidegate.Cost(int64(n)))
}

// Allow says whether an event may happen now.
func (limiter *Limiter) Allow() bool { return limiter.AllowN(time.Now(), 1) }

// AllowN says whether n events may happen now.
func (limiter *Limiter) AllowN(_ time.Time, n int) bool {
	decision, err := limiter.ask(context.Background(), n)
	return err == nil && decision.Allowed
}

func (limiter *Limiter) ask(ctx context.Context, n int) (tidegate.Decision, error) {
	return limiter.client.Allow(ctx, limiter.attributes, limiter.options(n)...)
}

// Wait blocks until an event may happen.
func (limiter *Limiter) Wait(ctx context.Context) error { return limiter.WaitN(ctx, 1) }

// WaitN blocks until n events may happen. It returns an error if they never may, if ctx ends, or if ctx would end
// before they may. A leaky bucket's queue is waited in; other denials are waited for, spread by a tenth.
func (limiter *Limiter) WaitN(ctx context.Context, n int) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Of a call that is given up nobody would know whether it took a place: it ends by the client's deadline.
		decision, err := limiter.ask(context.WithoutCancel(ctx), n)
		if err != nil {
			return err
		}
		if decision.Allowed {
			return limiter.hold(ctx, n, &decision)
		}
		wait, waits := decision.RetryAfter()
		if !waits {
			return fmt.Errorf("rate: Wait(n=%d) exceeds limiter's burst %d", n, decision.Limit)
		}
		if deadline, has := ctx.Deadline(); has && time.Until(deadline) < wait {
			return fmt.Errorf("rate: Wait(n=%d) would exceed context deadline", n)
		}
		if err := pause(ctx, wait+rand.N(wait/10+time.Millisecond)); err != nil {
			return err
		}
	}
}

// hold waits for the place in a queue that the service gave, and gives it back if ctx ends meanwhile.
func (limiter *Limiter) hold(ctx context.Context, n int, decision *tidegate.Decision) error {
	err := pause(ctx, decision.Delay())
	if err != nil && decision.Source == tidegate.FromServer {
		// What was accepted as a cost is accepted as a refund.
		_, _ = limiter.client.Refund(context.WithoutCancel(ctx), limiter.attributes, limiter.options(n)...)
	}
	return err
}

func pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reservation is what was taken for events that happen after a delay.
type Reservation struct {
	limiter   *Limiter
	n         int
	ok        bool
	counted   bool
	timeToAct time.Time
	cancelled atomic.Bool
}

// Reserve is ReserveN for one event.
func (limiter *Limiter) Reserve() *Reservation { return limiter.ReserveN(time.Now(), 1) }

// ReserveN takes n events, to happen after the reservation's delay. Under a leaky bucket the delay is the place in
// its queue. Other limits hand out nothing ahead of time: what they deny is not OK.
func (limiter *Limiter) ReserveN(_ time.Time, n int) *Reservation {
	decision, err := limiter.ask(context.Background(), n)
	return &Reservation{
		limiter: limiter, n: n, ok: err == nil && decision.Allowed,
		counted:   decision.Source == tidegate.FromServer,
		timeToAct: time.Now().Add(decision.Delay()),
	}
}

// OK says whether the events may happen after the delay.
func (reservation *Reservation) OK() bool { return reservation.ok }

// Delay is how long to wait before the events happen.
func (reservation *Reservation) Delay() time.Duration { return reservation.DelayFrom(time.Now()) }

// DelayFrom is the delay from another time on.
func (reservation *Reservation) DelayFrom(t time.Time) time.Duration {
	if !reservation.ok {
		return InfDuration
	}
	return max(reservation.timeToAct.Sub(t), 0)
}

// Cancel gives back what was taken: the events will not happen.
func (reservation *Reservation) Cancel() { reservation.CancelAt(time.Now()) }

// CancelAt is Cancel. It does nothing if the events' time has come.
func (reservation *Reservation) CancelAt(t time.Time) {
	if !reservation.ok || !reservation.counted || reservation.timeToAct.Before(t) || reservation.cancelled.Swap(true) {
		return
	}
	// What was accepted as a cost is accepted as a refund.
	limiter := reservation.limiter
	_, _ = limiter.client.Refund(context.Background(), limiter.attributes, limiter.options(reservation.n)...)
}

// read asks what remains, and takes nothing.
func (limiter *Limiter) read() tidegate.Decision {
	decision, err := limiter.ask(context.Background(), 0)
	if err != nil {
		return tidegate.Decision{}
	}
	return decision
}

// Burst is the most that can happen at once. It is 0 if the service gives no answer, or nothing limits.
func (limiter *Limiter) Burst() int { return int(limiter.read().Limit) }

// Tokens is what can happen now.
func (limiter *Limiter) Tokens() float64 { return float64(limiter.read().Remaining) }

// TokensAt is Tokens: the service's clock counts.
func (limiter *Limiter) TokensAt(time.Time) float64 { return limiter.Tokens() }

// Limit is the rate in the long run: the policy's quota over its window. It is Inf where nothing limits, and 0
// where it is not known.
func (limiter *Limiter) Limit() Limit {
	decision := limiter.read()
	if decision.NoMatch {
		return Inf
	}
	policies, _ := fields.Read([]string{decision.RateLimitPolicy})
	for _, policy := range policies {
		if policy.Name == decision.Policy && policy.Integers["w"] > 0 {
			return Limit(policy.Integers["q"]) / Limit(policy.Integers["w"])
		}
	}
	return 0
}
