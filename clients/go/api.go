package tidegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxBatch is how many requests go into one call to the server.
const MaxBatch = 1000

// maxReplyBytes is how much of a reply is read.
const maxReplyBytes = 4 << 20

// Attributes are what is known of a request, such as client_id and resource.
type Attributes map[string]string

// Request is one question: the schema DecisionBody of the API. Make it with [Ask].
type Request struct {
	Attributes Attributes `json:"attributes"`
	// Cost is how many units the request takes. 0 reads what remains.
	Cost int64 `json:"cost"`
	// Peek asks as if the cost were spent, and spends nothing.
	Peek bool `json:"peek,omitempty"`
	// Limits decide where no policy applies.
	Limits *Limits `json:"limits,omitempty"`
}

// Limits are a limit that comes with a request: the schema LimitsBody of the API.
type Limits struct {
	// Limit is how many units a window has.
	Limit         int64 `json:"limit"`
	WindowSeconds int64 `json:"window_seconds"`
	// Algorithm is sliding_log if it is empty.
	Algorithm string `json:"algorithm,omitempty"`
	// Burst is how many units a bucket gives at once.
	Burst int64 `json:"burst,omitempty"`
}

// same says whether two requests bring the same limits, or none.
func (limits *Limits) same(other *Limits) bool {
	if limits == nil || other == nil {
		return limits == other
	}
	return *limits == *other
}

// Option changes a request that takes one unit.
type Option func(*Request)

// Cost says how many units a request takes; 0 reads what remains.
func Cost(units int64) Option { return func(request *Request) { request.Cost = units } }

// Peek asks as if the cost were spent, and spends nothing.
func Peek() Option { return func(request *Request) { request.Peek = true } }

// WithLimits brings limits, which decide where no policy applies. Units are given back with the same limits.
func WithLimits(limits Limits) Option { return func(request *Request) { request.Limits = &limits } }

// Ask makes a request that takes one unit, unless an option says otherwise.
func Ask(attributes Attributes, options ...Option) Request {
	request := Request{Attributes: attributes, Cost: 1}
	for _, option := range options {
		option(&request)
	}
	return request
}

// spends says whether an answer changes what remains.
func (request *Request) spends() bool { return request.Cost > 0 && !request.Peek }

// PolicyPart is one policy's part in a decision: the schema PartReply.
type PolicyPart struct {
	Policy string `json:"policy"`
	// Mode is "enforce" or "shadow".
	Mode      string `json:"mode"`
	Allowed   bool   `json:"allowed"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	// RetryAfterMS is absent if the same request fits, or never will.
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"`
	ResetMS      int64  `json:"reset_ms"`
	// Concurrent says that it limits requests at one time: any release may end a denial before its wait is over.
	Concurrent bool `json:"concurrent,omitempty"`
}

// Source says who answered.
type Source string

// Who answered.
const (
	// FromServer is an answer of the server.
	FromServer Source = "server"
	// FromCache is a denial that the server gave before, and whose wait is not over.
	FromCache Source = "cache"
	// FromFallback is an answer by [Options.OnFailure], because the server gave none.
	FromFallback Source = "fallback"
)

// Failure says why the server did not answer.
type Failure string

// Why the server did not answer.
const (
	// NoFailure: it did answer.
	NoFailure Failure = ""
	// FailedTimeout: no answer came before the deadline.
	FailedTimeout Failure = "timeout"
	// FailedConnection: it could not be reached, or the connection broke off.
	FailedConnection Failure = "connection"
	// FailedStatus: the reply's status was not 200.
	FailedStatus Failure = "status"
	// FailedReply: the reply was no reply of the API.
	FailedReply Failure = "reply"
	// FailedBreaker: nothing was asked, because the server failed before.
	FailedBreaker Failure = "breaker"
	// FailedCancelled: the caller's context was cancelled, or the client was closed.
	FailedCancelled Failure = "cancelled"
)

// Decision is the answer to a request: the schema DecisionReply, and how it was found.
type Decision struct {
	Allowed bool `json:"allowed"`
	// NoMatch says that no policy applies to the request.
	NoMatch bool `json:"no_match,omitempty"`
	// Policy speaks for the decision. It is empty if none applied, and in answers without the server.
	Policy string `json:"policy,omitempty"`
	// Limit is the most that can be spent at once, Remaining what can still be spent. Both are 0 where
	// nothing is known of them: if no policy applied, or if nothing was counted.
	Limit     int64 `json:"limit,omitempty"`
	Remaining int64 `json:"remaining,omitempty"`
	// RetryAfterSeconds is the wait in whole seconds, denials only.
	RetryAfterSeconds int64 `json:"retry_after,omitempty"`
	// RetryAfterMS is the wait in milliseconds, denials only; nil if the request can never be allowed.
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"`
	// ResetMS is the time until the whole quota is back.
	ResetMS int64 `json:"reset_ms,omitempty"`
	// DelayMS is how long to hold an allowed request back, leaky buckets only.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// Degraded says how the answer was found without the server, or by the server without its store:
	// "local", "open" or "closed".
	Degraded string `json:"degraded,omitempty"`
	// Permit is what a concurrency limit handed out.
	Permit   string       `json:"permit,omitempty"`
	Policies []PolicyPart `json:"policies"`

	// Source says who answered.
	Source Source `json:"-"`
	// Failure says why the server did not answer.
	Failure Failure `json:"-"`
	// RateLimit and RateLimitPolicy are the response fields of the server's reply; empty in a batch.
	RateLimit       string `json:"-"`
	RateLimitPolicy string `json:"-"`
}

// UnmarshalJSON refuses what is no decision: an empty object of some other server neither allows nor denies.
func (decision *Decision) UnmarshalJSON(text []byte) error {
	type plain Decision
	strict := struct {
		Allowed *bool `json:"allowed"`
		*plain
	}{plain: (*plain)(decision)}
	if err := json.Unmarshal(text, &strict); err != nil {
		return err
	}
	if strict.Allowed == nil || decision.Policies == nil {
		return errors.New("it is no decision: `allowed` or `policies` is missing")
	}
	decision.Allowed = *strict.Allowed
	return nil
}

// RetryAfter is how long to wait before the same request can be allowed. The second result is false if
// the request was allowed or can never be.
func (decision *Decision) RetryAfter() (time.Duration, bool) {
	if decision.Allowed || decision.RetryAfterMS == nil {
		return 0, false
	}
	return time.Duration(*decision.RetryAfterMS) * time.Millisecond, true
}

// Delay is how long to hold an allowed request back.
func (decision *Decision) Delay() time.Duration {
	return time.Duration(decision.DelayMS) * time.Millisecond
}

// Violated names the policies that denied.
func (decision *Decision) Violated() []string {
	var names []string
	for _, part := range decision.Policies {
		if part.Mode == "enforce" && !part.Allowed {
			names = append(names, part.Policy)
		}
	}
	return names
}

// Explanation says what each policy would do to a request: the schema Explanation.
type Explanation struct {
	Allowed  bool   `json:"allowed"`
	Degraded string `json:"degraded,omitempty"`
	NoMatch  bool   `json:"no_match,omitempty"`
	// NotListed is how many policies that do not apply are left out of Policies.
	NotListed int64               `json:"not_listed,omitempty"`
	Policies  []PolicyExplanation `json:"policies"`
	// RequestLimits are those that came with the request, if some did.
	RequestLimits *RequestLimits `json:"request_limits,omitempty"`
	// Revision is that of the stored configuration.
	Revision int64 `json:"revision"`
}

// RequestLimits are numbers that came with a request, in its explanation: the schema RequestLimitsExplanation.
type RequestLimits struct {
	// Decide says whether they decide.
	Decide bool `json:"decide"`
	// Limits are the numbers, as the request stated them.
	Limits map[string]any `json:"limits"`
	// Verdict is what they would say, if they decide.
	Verdict *PolicyPart `json:"verdict,omitempty"`
}

// UnmarshalJSON refuses what is no explanation.
func (explanation *Explanation) UnmarshalJSON(text []byte) error {
	type plain Explanation
	return readWhole(text, (*plain)(explanation), "allowed", "policies", "revision")
}

// readWhole reads an object that has these members.
func readWhole(text []byte, into any, members ...string) error {
	var present map[string]json.RawMessage
	if err := json.Unmarshal(text, &present); err != nil {
		return err
	}
	for _, name := range members {
		if _, is := present[name]; !is {
			return fmt.Errorf("`%s` is missing", name)
		}
	}
	return json.Unmarshal(text, into)
}

// PolicyExplanation is one policy's part in an explanation.
type PolicyExplanation struct {
	// Policy is its document.
	Policy map[string]any `json:"policy"`
	// Origin is "built-in", "file" or "stored".
	Origin  string `json:"origin"`
	Applies bool   `json:"applies"`
	// BecauseOf is the attribute that is absent or does not match.
	BecauseOf string `json:"because_of,omitempty"`
	// OwnLimits are the client's own numbers.
	OwnLimits map[string]any    `json:"own_limits,omitempty"`
	Lease     *LeaseExplanation `json:"lease,omitempty"`
	Verdict   *PolicyPart       `json:"verdict,omitempty"`
}

// LeaseExplanation is what taking units of a policy ahead can cost.
type LeaseExplanation struct {
	LifetimeMS    int64 `json:"lifetime_ms"`
	Nodes         int64 `json:"nodes"`
	OverAdmission int64 `json:"over_admission"`
	Stranded      int64 `json:"stranded"`
	Units         int64 `json:"units"`
}

// Problem is what the server answers instead of a result (RFC 9457).
type Problem struct {
	Type             string       `json:"type"`
	Title            string       `json:"title"`
	Status           int          `json:"status"`
	Detail           string       `json:"detail"`
	Errors           []FieldError `json:"errors,omitempty"`
	ViolatedPolicies []string     `json:"violated-policies,omitempty"`
}

// FieldError is one mistake in what was sent.
type FieldError struct {
	// Pointer says where, as a JSON pointer.
	Pointer  string `json:"pointer"`
	Detail   string `json:"detail"`
	Accepted string `json:"accepted,omitempty"`
}

// Refunded is the result of a refund: the schema RefundReply, or why the server gave no answer.
type Refunded struct {
	// Policies are the names of those that were given units back.
	Policies []string `json:"policies"`
	// Failure says why the server gave no answer. The units may have come back or not.
	Failure Failure `json:"-"`
}

// UnmarshalJSON refuses what is no result of a refund.
func (refunded *Refunded) UnmarshalJSON(text []byte) error {
	type plain Refunded
	return readWhole(text, (*plain)(refunded), "policies")
}

// renewed is the schema Renewed.
type renewed struct {
	LeaseMS int64 `json:"lease_ms"`
}

// UnmarshalJSON refuses what is no renewal.
func (renewal *renewed) UnmarshalJSON(text []byte) error {
	type plain renewed
	return readWhole(text, (*plain)(renewal), "lease_ms")
}
