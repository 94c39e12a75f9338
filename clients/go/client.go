package tidegate

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the version of this module, the same as the server's.
const Version = "0.1.0"

// Client asks one Tidegate service. It is safe for use by many goroutines; make one and keep it.
type Client struct {
	// base is the service's address as text, without a slash at its end.
	base      string
	options   Options
	transport http.RoundTripper
	breaker   *breaker
	denials   *denials
	fallback  *fallback
	batch     *batcher
	// places has one for each call that is under way.
	places chan struct{}
	closed atomic.Bool
	// refused is done when the log has said that the server refuses what a middleware asks.
	refused sync.Once

	fromServer, fromCache, fromFallback, full atomic.Uint64
}

// New makes a client. It sends nothing. Each function may change the options that it is given:
//
//	client, err := tidegate.New(func(options *tidegate.Options) { options.OnFailure = tidegate.FailClosed })
func New(change ...func(*Options)) (*Client, error) {
	options := defaults()
	for _, apply := range change {
		apply(&options)
	}
	base, err := options.address()
	if err != nil {
		return nil, err
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	client := &Client{
		base: base.String(), options: options, transport: options.Transport,
		breaker:  &breaker{failures: options.BreakerFailures, pause: options.BreakerOpen},
		denials:  newDenials(options.DenialCache, options.DenialCacheTime),
		fallback: newFallback(options.OnFailure, options.Fallback),
		places:   make(chan struct{}, options.MaxConnections),
	}
	if client.transport == nil {
		client.transport = newTransport(options.MaxConnections, options.TLS)
	}
	if options.Batch {
		client.batch = &batcher{client: client}
	}
	return client, nil
}

// Allow asks whether a request with these attributes may go ahead, and takes one unit unless an option says
// otherwise. It answers within the deadline, whatever the server does: [Decision.Source] says who did. The
// error is an [InvalidRequestError], for a request that is wrong in itself.
func (client *Client) Allow(ctx context.Context, attributes Attributes, options ...Option) (Decision, error) {
	started := time.Now()
	request := Ask(attributes, options...)
	decision, err := client.decide(ctx, &request, started)
	client.tellDecision(ctx, "allow", &decision, err, started)
	return decision, err
}

func (client *Client) decide(ctx context.Context, request *Request, now time.Time) (Decision, error) {
	if decision, found := client.denials.find(request, now); found {
		return decision, nil
	}
	asked := client.denials.asked()
	ctx, cancel := client.bounded(ctx)
	defer cancel()
	ask := client.decideOne
	if client.batch != nil {
		ask = client.batch.ask
	}
	decision, err := ask(ctx, request)
	return client.settle(request, decision, err, asked)
}

func (client *Client) decideOne(ctx context.Context, request *Request) (Decision, error) {
	var decision Decision
	err := client.call(ctx, http.MethodPost, "/v1/decisions", request, &decision)
	return decision, err
}

// settle makes of what came the answer that the caller gets.
func (client *Client) settle(request *Request, decision Decision, err error, asked uint64) (Decision, error) {
	switch {
	case isInvalid(err):
		return Decision{}, err
	case err != nil:
		return client.fallback.answer(request, time.Now(), failureOf(err)), nil
	}
	decision.Source = FromServer
	if !decision.Allowed {
		client.denials.remember(request, &decision, asked, time.Now())
	}
	return decision, nil
}

// Batch asks several requests, 1,000 in one call; each is decided by itself, in order. Those whose denial is
// remembered are not sent. The error is an [InvalidRequestError]; then no later request was decided.
func (client *Client) Batch(ctx context.Context, requests []Request) ([]Decision, error) {
	started := time.Now()
	decisions, err := client.decideAll(ctx, requests, started)
	if err != nil {
		client.tell(ctx, Event{Operation: "batch", Outcome: "failed", Count: 1}, started)
	}
	for index := range decisions {
		client.tellDecision(ctx, "batch", &decisions[index], nil, started)
	}
	return decisions, err
}

func (client *Client) decideAll(ctx context.Context, requests []Request, started time.Time) ([]Decision, error) {
	decisions := make([]Decision, len(requests))
	ctx, cancel := client.bounded(ctx)
	defer cancel()
	var asked []*Request
	var places []int
	flush := func() error {
		when := client.denials.asked()
		answers, err := client.decideTogether(ctx, asked)
		for at, index := range places {
			var answer Decision
			if err == nil {
				answer = answers[at]
			}
			var wrong error
			if decisions[index], wrong = client.settle(asked[at], answer, err, when); wrong != nil {
				return wrong
			}
		}
		asked, places = nil, nil
		return nil
	}
	for index := range requests {
		if decision, found := client.denials.find(&requests[index], started); found {
			decisions[index] = decision
			continue
		}
		asked, places = append(asked, &requests[index]), append(places, index)
		if len(asked) == MaxBatch {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if len(asked) > 0 {
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return decisions, nil
}

// decideTogether asks one or more requests in one call.
func (client *Client) decideTogether(ctx context.Context, requests []*Request) ([]Decision, error) {
	if len(requests) == 1 {
		decision, err := client.decideOne(ctx, requests[0])
		return []Decision{decision}, err
	}
	replies := decisionList{wanted: len(requests)}
	err := client.call(ctx, http.MethodPost, "/v1/decisions", requests, &replies)
	return replies.list, err
}

// Refund gives one unit, or what [Cost] says, back to every policy that applies. The error is an
// [InvalidRequestError].
func (client *Client) Refund(ctx context.Context, attributes Attributes, options ...Option) (Refunded, error) {
	request := Ask(attributes, options...)
	var reply Refunded
	err := client.simple(ctx, "refund", http.MethodPost, "/v1/refunds", &request, &reply)
	client.denials.forget(attributes)
	if isInvalid(err) {
		return Refunded{}, err
	}
	if err != nil {
		reply = Refunded{Failure: failureOf(err)}
	}
	return reply, nil
}

// Explain says what each policy would do to a request, and why; it takes nothing. The error is an
// [InvalidRequestError] or an [UnavailableError].
func (client *Client) Explain(ctx context.Context, attributes Attributes, options ...Option) (Explanation, error) {
	asked := Ask(nil, options...)
	query := url.Values{"cost": {strconv.FormatInt(asked.Cost, 10)}}
	for name, value := range attributes {
		query.Set(name, value)
	}
	if asked.Limits != nil {
		limits, err := json.Marshal(asked.Limits)
		if err != nil {
			return Explanation{}, err
		}
		query.Set("limits", string(limits))
	}
	var reply Explanation
	err := client.simple(ctx, "explain", http.MethodGet, "/v1/explain?"+query.Encode(), nil, &reply)
	if err != nil {
		return Explanation{}, err
	}
	return reply, nil
}

// simple is a call that decides nothing.
func (client *Client) simple(ctx context.Context, operation, method, path string, body any, reply json.Unmarshaler) error {
	started := time.Now()
	ctx, cancel := client.bounded(ctx)
	defer cancel()
	err := client.call(ctx, method, path, body, reply)
	event := Event{Operation: operation, Outcome: "done", Source: FromServer, Count: 1}
	if err != nil {
		event.Outcome, event.Source, event.Failure = "failed", "", failureOf(err)
	}
	client.tell(ctx, event, started)
	return err
}

// Close ends the connections that nothing uses. Later calls are answered by [Options.OnFailure].
func (client *Client) Close() {
	client.closed.Store(true)
	if idle, is := client.transport.(interface{ CloseIdleConnections() }); is {
		idle.CloseIdleConnections()
	}
}
