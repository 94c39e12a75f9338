// Package tidegatehttp limits an HTTP server's clients, and lets an HTTP client keep to the limits of others.
//
//	limited := tidegatehttp.Middleware(client)
//	http.ListenAndServe(":8080", limited(mux))
package tidegatehttp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/fields"
)

// Options says what a middleware asks about a request. [Middleware] fills in the defaults before it hands them
// to the functions that change them.
type Options struct {
	// Attributes are what is known of a request: its path and its method.
	Attributes func(*http.Request) tidegate.Attributes
	// Key becomes client_id: the peer's address, as the connection states it.
	Key func(*http.Request) string
	// Cost is how many units it takes, or the most that it can take, see [Settle]: 1.
	Cost func(*http.Request) int64
	// Skip says which requests are not limited: none.
	Skip func(*http.Request) bool
	// MaxDelay is how long a request is held back at most where a leaky bucket says so: a second.
	MaxDelay time.Duration
}

func defaults() Options {
	return Options{
		Attributes: func(request *http.Request) tidegate.Attributes {
			return tidegate.Attributes{"path": request.URL.EscapedPath(), "method": request.Method}
		},
		Key: func(request *http.Request) string {
			if host, _, err := net.SplitHostPort(request.RemoteAddr); err == nil {
				return host
			}
			return request.RemoteAddr
		},
		Cost:     func(*http.Request) int64 { return 1 },
		Skip:     func(*http.Request) bool { return false },
		MaxDelay: time.Second,
	}
}

// Middleware lets requests through to a handler, or answers them with a denial, as the service decides.
func Middleware(client *tidegate.Client, change ...func(*Options)) func(http.Handler) http.Handler {
	options := defaults()
	for _, apply := range change {
		apply(&options)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if options.Skip(request) {
				next.ServeHTTP(writer, request)
				return
			}
			charge, err := client.Reserve(request.Context(), options.attributes(request), options.Cost(request))
			switch {
			case err != nil:
				refuse(writer, err)
			case !charge.Allowed:
				Deny(writer, &charge.Decision)
			default:
				options.serve(writer, request, next, charge)
			}
		})
	}
}

func (options *Options) attributes(request *http.Request) tidegate.Attributes {
	bounded := tidegate.Attributes{"client_id": tidegate.Bounded(options.Key(request))}
	for name, value := range options.Attributes(request) {
		bounded[name] = tidegate.Bounded(value)
	}
	return bounded
}

type usedKey struct{}

// unsettled is what `used` is before [Settle].
const unsettled = -1

// serve runs the handler, and gives back what it did not use.
func (options *Options) serve(writer http.ResponseWriter, request *http.Request, next http.Handler, charge *tidegate.Charge) {
	if delay := min(charge.Delay(), options.MaxDelay); delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-request.Context().Done():
		}
	}
	Describe(writer.Header(), &charge.Decision)
	used := &atomic.Int64{}
	used.Store(unsettled)
	ctx := context.WithValue(request.Context(), usedKey{}, used)
	defer func() {
		if units := used.Load(); units != unsettled {
			// Not before the end of the reply: its last bytes leave when this handler returns. The call has the
			// client's deadline and one of its connections.
			go charge.Settle(ctx, units)
		}
	}()
	next.ServeHTTP(writer, request.WithContext(ctx))
}

// Settle says how many of the units that [Options.Cost] reserved a request has used. The last call counts, and
// what is left is given back when the handler has returned. ctx is the request's.
func Settle(ctx context.Context, used int64) {
	if units, is := ctx.Value(usedKey{}).(*atomic.Int64); is {
		units.Store(max(used, 0))
	}
}

// Describe puts the response fields RateLimit-Policy and RateLimit of a decision into a header.
func Describe(header http.Header, decision *tidegate.Decision) {
	policies, states := decision.RateLimitPolicy, decision.RateLimit
	if policies == "" || states == "" {
		madePolicies, madeStates := made(decision)
		if policies == "" {
			policies = madePolicies
		}
		states = madeStates
	}
	if policies != "" && states != "" {
		header.Set("RateLimit-Policy", policies)
		header.Set("RateLimit", states)
	}
}

// made are both fields, of a decision's enforced parts: of a batch's, which has none, and of a remembered
// denial, whose wait has changed.
func made(decision *tidegate.Decision) (policies, states string) {
	for _, part := range decision.Policies {
		if part.Mode != "enforce" {
			continue
		}
		if policies != "" {
			policies, states = policies+",", states+","
		}
		name := fields.Quoted(part.Policy)
		policies += name + ";q=" + strconv.FormatInt(part.Limit, 10)
		states += name + ";r=" + strconv.FormatInt(part.Remaining, 10)
		if !part.Allowed && part.RetryAfterMS != nil {
			states += ";t=" + strconv.FormatInt((*part.RetryAfterMS+999)/1000, 10)
		}
	}
	return policies, states
}

// Deny answers a request that was denied.
func Deny(writer http.ResponseWriter, decision *tidegate.Decision) {
	problem := tidegate.Problem{
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota Exceeded",
		Status: http.StatusTooManyRequests, Detail: "the quota of a policy is used up",
		ViolatedPolicies: decision.Violated(),
	}
	switch {
	case decision.Source == tidegate.FromFallback && decision.Degraded == string(tidegate.FailClosed):
		problem = tidegate.Problem{
			Type:  "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			Title: "Service Unavailable", Status: http.StatusServiceUnavailable,
			Detail: "the rate limit cannot be checked",
		}
	case decision.NoMatch:
		problem = tidegate.Problem{
			Type: "about:blank", Title: "Forbidden", Status: http.StatusForbidden,
			Detail: "no policy applies to the request",
		}
	default:
		Describe(writer.Header(), decision)
	}
	if decision.RetryAfterSeconds > 0 && problem.Status != http.StatusForbidden {
		writer.Header().Set("Retry-After", strconv.FormatInt(decision.RetryAfterSeconds, 10))
	}
	write(writer, &problem)
}

// refuse answers a request of whose attributes the server says that they are wrong.
func refuse(writer http.ResponseWriter, err error) {
	problem := tidegate.Problem{Type: "about:blank", Title: "Bad Request", Status: http.StatusBadRequest}
	var invalid *tidegate.InvalidRequestError
	if errors.As(err, &invalid) {
		problem.Detail = invalid.Problem.Detail
	}
	write(writer, &problem)
}

func write(writer http.ResponseWriter, problem *tidegate.Problem) {
	text, err := json.Marshal(problem)
	if err != nil {
		text = []byte("{}") // Unreachable: texts and integers can be written.
	}
	writer.Header().Set("Content-Type", "application/problem+json")
	writer.Header().Set("Cache-Control", "no-store")
	writer.WriteHeader(problem.Status)
	_, _ = writer.Write(text) // A client that has gone needs no answer.
}
