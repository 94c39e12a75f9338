// Package tidegatehttp limits an HTTP server's clients, and lets an HTTP client keep to the limits of others.
//
//	limited := tidegatehttp.Middleware(client)
//	http.ListenAndServe(":8080", limited(mux))
package tidegatehttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/fields"
	"github.com/tidegate/tidegate/clients/go/internal/peers"
)

// maxPathBytes is the longest path that is asked for. It is sent whole, since a policy could not see what was cut off.
const maxPathBytes = 16 << 10

// readable is what a script of another origin may read of a denial.
const readable = "RateLimit, RateLimit-Policy, Retry-After"

// Options says what a middleware asks about a request. [Middleware] fills in the defaults before it hands them
// to the functions that change them.
type Options struct {
	// Attributes are what is known of a request: its path, see [Path], and its method.
	Attributes func(*http.Request) tidegate.Attributes
	// Key becomes client_id: the peer's address, as the connection states it, of IPv6 the /64.
	Key func(*http.Request) string
	// Cost is how many units it takes, or the most that it can take, see [Settle]: 1.
	Cost func(*http.Request) int64
	// Skip says which requests are not limited: none.
	Skip func(*http.Request) bool
	// MaxDelay is how long a request is held back at most where a leaky bucket says so: a second.
	MaxDelay time.Duration
}

func defaults() Options {
	once := &sync.Once{}
	return Options{
		Attributes: func(request *http.Request) tidegate.Attributes {
			return tidegate.Attributes{"path": Path(request), "method": request.Method}
		},
		Key: func(request *http.Request) string {
			forwarded := strings.Join(request.Header.Values("X-Forwarded-For"), ",")
			peers.Forwarded(once, forwarded, request.RemoteAddr, "let a handler before this one set RemoteAddr")
			return peers.Name(request.RemoteAddr)
		},
		Cost:     func(*http.Request) int64 { return 1 },
		Skip:     func(*http.Request) bool { return false },
		MaxDelay: time.Second,
	}
}

// Path is the path by which a request is routed, escaped: with the prefix that [http.StripPrefix] has taken off. What
// another handler has rewritten is taken as it is now.
func Path(request *http.Request) string {
	path := request.URL.EscapedPath()
	if sent, err := url.ParseRequestURI(request.RequestURI); err == nil {
		if whole := sent.EscapedPath(); strings.HasSuffix(whole, path) {
			path = whole
		}
	}
	if path == "" {
		return "/"
	}
	return path
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
			attributes := options.attributes(request)
			if len(attributes["path"]) > maxPathBytes {
				expose(writer.Header(), request)
				refuse(writer)
				return
			}
			charge := client.Admit(request.Context(), attributes, options.Cost(request))
			if !charge.Allowed {
				expose(writer.Header(), request)
				Deny(writer, &charge.Decision)
				return
			}
			options.serve(writer, request, next, charge)
		})
	}
}

func (options *Options) attributes(request *http.Request) tidegate.Attributes {
	bounded := tidegate.Attributes{"client_id": tidegate.Bounded(options.Key(request))}
	for name, value := range options.Attributes(request) {
		if name == "path" {
			bounded[name] = strings.ToValidUTF8(value, "\uFFFD")
		} else {
			bounded[name] = tidegate.Bounded(value)
		}
	}
	return bounded
}

// expose lets scripts of other origins read why, where the application lets them read replies at all.
func expose(header http.Header, request *http.Request) {
	const name = "Access-Control-Expose-Headers"
	if request.Header.Get("Origin") != "" && header.Get(name) == "" {
		header.Set(name, readable)
	}
}

func isPreflight(request *http.Request) bool {
	return request.Method == http.MethodOptions && request.Header.Get("Origin") != "" &&
		request.Header.Get("Access-Control-Request-Method") != ""
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
		if isPreflight(request) && writer.Header().Get("Access-Control-Allow-Methods") != "" {
			used.Store(0) // The application's CORS has answered it.
		}
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

// refuse answers a request whose path cannot be counted.
func refuse(writer http.ResponseWriter) {
	write(writer, &tidegate.Problem{
		Type: "about:blank", Title: "URI Too Long", Status: http.StatusRequestURITooLong,
		Detail: fmt.Sprintf("the path is longer than %d bytes", maxPathBytes),
	})
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
