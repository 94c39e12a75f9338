package tidegate

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// Permit is a place under a concurrency limit, or the denial of one.
//
//	permit, err := client.Acquire(ctx, tidegate.Attributes{"resource": "reports"})
//	if err != nil {
//		return err
//	}
//	defer permit.Release(ctx)
//	if !permit.Allowed {
//		return errBusy
//	}
type Permit struct {
	Decision

	client   *Client
	released atomic.Bool
}

// Acquire asks for a permit. Without the server it is answered by [Options.OnFailure]; then it holds nothing.
// A permit that is not released lapses with its lease. The error is an [InvalidRequestError].
func (client *Client) Acquire(ctx context.Context, attributes Attributes, options ...Option) (*Permit, error) {
	started := time.Now()
	request := Ask(attributes, options...)
	bounded, cancel := client.bounded(ctx)
	defer cancel()
	permit := &Permit{client: client}
	err := client.call(bounded, http.MethodPost, "/v1/permits", &request, &permit.Decision)
	permit.Source = FromServer
	if failure := failureOf(err); failure != NoFailure {
		permit.Decision, err = client.fallback.answer(&request, time.Now(), failure), nil
	}
	client.tellDecision(ctx, "acquire", &permit.Decision, err, started)
	if err != nil {
		return nil, err
	}
	return permit, nil
}

// Held says whether there is a permit that was not released.
func (permit *Permit) Held() bool {
	return permit != nil && permit.Permit != "" && !permit.released.Load()
}

// Release gives the permit back, once. It may be called on a denial, on nil and when ctx has ended: the call
// has its own deadline. What cannot be released lapses with its lease.
func (permit *Permit) Release(ctx context.Context) {
	if !permit.Held() || permit.released.Swap(true) {
		return
	}
	_ = permit.client.simple(context.WithoutCancel(ctx), "release", http.MethodDelete, permit.path(), nil, nil)
}

// Renew makes the permit last for another lease, whose length it returns. It returns false if the permit is not
// held any more, or the server gave no answer.
func (permit *Permit) Renew(ctx context.Context) (time.Duration, bool) {
	if !permit.Held() {
		return 0, false
	}
	var reply renewed
	err := permit.client.simple(ctx, "renew", http.MethodPost, permit.path()+"/renew", nil, &reply)
	return time.Duration(reply.LeaseMS) * time.Millisecond, err == nil
}

func (permit *Permit) path() string { return "/v1/permits/" + url.PathEscape(permit.Permit) }

// Charge is a cost that was taken before it was known, to be settled at the end: for a reply that streams.
type Charge struct {
	Decision

	client     *Client
	attributes Attributes
	units      int64
	settled    atomic.Bool
}

// Reserve takes the most units that a request can use, of which [Charge.Settle] gives back what is left.
func (client *Client) Reserve(ctx context.Context, attributes Attributes, units int64) (*Charge, error) {
	decision, err := client.Allow(ctx, attributes, Cost(units))
	if err != nil {
		return nil, err
	}
	return &Charge{Decision: decision, client: client, attributes: attributes, units: units}, nil
}

// Admit is [Client.Reserve] for a middleware, whose attributes are what a user has sent: where the server refuses them,
// [Options.OnFailure] decides, since that is no mistake of the user. The log says so once.
func (client *Client) Admit(ctx context.Context, attributes Attributes, units int64) *Charge {
	charge, err := client.Reserve(ctx, attributes, units)
	if err == nil {
		return charge
	}
	client.refused.Do(func() {
		slog.Warn("tidegate: the server refuses what it is asked, so OnFailure decides", "error", err)
	})
	request := Ask(attributes, Cost(units))
	decision := client.fallback.answer(&request, time.Now(), FailedStatus)
	return &Charge{Decision: decision, client: client, attributes: attributes, units: units}
}

// Settle says how many units were used; the others are given back. Only the first call counts, also when ctx
// has ended, and nothing is given back that the server has not taken.
func (charge *Charge) Settle(ctx context.Context, used int64) {
	left := charge.units - max(used, 0)
	if !charge.Allowed || charge.Source != FromServer || left <= 0 || charge.settled.Swap(true) {
		return
	}
	// What was accepted as a cost is accepted as a refund.
	_, _ = charge.client.Refund(context.WithoutCancel(ctx), charge.attributes, Cost(left))
}
