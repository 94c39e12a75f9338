package tidegatehttp

import (
	"container/list"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/clients/go/internal/fields"
)

// maxDrained is how much of a reply is read to keep its connection, before the request is repeated.
const maxDrained = 64 << 10

// TransportOptions says how a [Transport] keeps to limits.
type TransportOptions struct {
	// Base sends the requests: http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait is the longest wait: a minute.
	MaxWait time.Duration
	// Retries is how often a request of a safe method without a body is repeated after 429 and 503: 2.
	Retries int
	// Origins is how many are kept: 1,000. Then the one unused for longest is forgotten.
	Origins int
}

// Transport is an http.RoundTripper for clients of any API that limits them. It keeps to what an origin says by
// RateLimit and Retry-After: it slows down before the denial, waits as long as it is told, and repeats only
// what changes nothing. A wait ends with the request's context.
type Transport struct {
	options TransportOptions

	mutex   sync.Mutex
	order   *list.List
	origins map[string]*list.Element
}

// origin is when the next request to a scheme, host and port may be sent.
type origin struct {
	name string
	// until: nothing leaves before, since nothing was left, or a request was denied. told is how long that was to wait.
	until time.Time
	told  time.Duration
	// gap lies between two requests while little is left.
	gap time.Duration
	// next is after those that wait already.
	next time.Time
}

// NewTransport makes a transport. Each function may change the options that it is given.
func NewTransport(change ...func(*TransportOptions)) *Transport {
	options := TransportOptions{Base: http.DefaultTransport, MaxWait: time.Minute, Retries: 2, Origins: 1000}
	for _, apply := range change {
		apply(&options)
	}
	options.Origins = max(options.Origins, 1)
	return &Transport{options: options, order: list.New(), origins: map[string]*list.Element{}}
}

// RoundTrip sends a request when its origin's limits admit it.
func (transport *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	name := originOf(request)
	for attempt := 0; ; attempt++ {
		if err := pause(request, transport.departure(name, time.Now())); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // A RoundTripper closes it, also on errors.
			}
			return nil, err
		}
		response, err := transport.options.Base.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		wait, spread := told(response.StatusCode, response.Header, now)
		transport.learn(name, min(wait, transport.options.MaxWait), spread, now)
		if attempt >= transport.options.Retries || !repeatable(request, response) || wait > transport.options.MaxWait {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, maxDrained) // What cannot be read costs the connection.
		_ = response.Body.Close()
	}
}

func repeatable(request *http.Request, response *http.Response) bool {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return false
	}
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return request.Body == nil || request.Body == http.NoBody
	}
	return false
}

func originOf(request *http.Request) string {
	host := strings.ToLower(request.URL.Host)
	if request.URL.Port() == "" {
		if request.URL.Scheme == "https" {
			host += ":443"
		} else {
			host += ":80"
		}
	}
	return request.URL.Scheme + "://" + host
}

func pause(request *http.Request, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-request.Context().Done():
		return request.Context().Err()
	}
}

// departure is how long a request waits. Those that wait leave one after the other.
func (transport *Transport) departure(name string, now time.Time) time.Duration {
	transport.mutex.Lock()
	defer transport.mutex.Unlock()
	element, found := transport.origins[name]
	if !found {
		return 0
	}
	transport.order.MoveToFront(element)
	origin := element.Value.(*origin)
	leaves := later(origin.until, origin.next)
	if leaves.After(now) {
		spread := origin.told
		if origin.gap > 0 {
			spread = origin.gap
		}
		leaves = leaves.Add(rand.N(spread/10 + 1))
		if latest := now.Add(transport.options.MaxWait); leaves.After(latest) {
			leaves = latest
		}
	}
	leaves = later(leaves, now)
	origin.next = leaves.Add(origin.gap)
	return leaves.Sub(now)
}

func later(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

// learn keeps what a response said; spread: the wait is for each of the next requests, not only for the first. A
// response to an earlier request does not take a wait back.
func (transport *Transport) learn(name string, wait time.Duration, spread bool, now time.Time) {
	transport.mutex.Lock()
	defer transport.mutex.Unlock()
	element, found := transport.origins[name]
	if !found {
		if wait <= 0 {
			return
		}
		if transport.order.Len() >= transport.options.Origins {
			delete(transport.origins, transport.order.Remove(transport.order.Back()).(*origin).name)
		}
		element = transport.order.PushFront(&origin{name: name})
		transport.origins[name] = element
	}
	origin, until := element.Value.(*origin), now.Add(wait)
	if spread {
		origin.gap, origin.next = wait, later(origin.next, until)
		return
	}
	if origin.gap > 0 {
		origin.gap, origin.next = 0, time.Time{}
	}
	if wait > 0 && until.After(origin.until) {
		origin.until, origin.told = until, wait
	}
}

// told is how long a response asks to wait, and whether that is for each of the next requests.
func told(status int, header http.Header, now time.Time) (wait time.Duration, spread bool) {
	limited, spread := fromRateLimit(header)
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return limited, spread
	}
	if wait, is := retryAfter(header.Get("Retry-After"), now); is {
		return wait, false
	}
	if limited > 0 {
		return limited, false
	}
	return time.Second, false
}

// forever stands for waits that no duration can hold.
const forever = 1<<63 - 1

func retryAfter(text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(forever/time.Second) {
			return forever, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// fromRateLimit is the longest wait of the policies in RateLimit: t where nothing is left, and t spread over
// what is left where that is less than a tenth of the quota.
func fromRateLimit(header http.Header) (longest time.Duration, spread bool) {
	states, is := parsed(header, "RateLimit", "r", "t")
	if !is {
		return 0, false
	}
	policies, _ := parsed(header, "RateLimit-Policy", "q", "w")
	quotas := map[string]int64{}
	for _, policy := range policies {
		quotas[policy.Name] = policy.Integers["q"]
	}
	for _, state := range states {
		left, seconds := state.Integers["r"], state.Integers["t"]
		if left > 0 && left >= (quotas[state.Name]+9)/10 {
			continue
		}
		if seconds > int64(forever/time.Second) {
			seconds = int64(forever / time.Second)
		}
		if wait := time.Duration(seconds) * time.Second / time.Duration(left+1); wait > longest {
			longest, spread = wait, left > 0
		}
	}
	return longest, spread
}

// parsed reads a field whose items need the one parameter and may have the other, both as integers that are not
// negative.
func parsed(header http.Header, name, needed, other string) ([]fields.Item, bool) {
	items, is := fields.Read(header.Values(name))
	if !is {
		return nil, false
	}
	for _, item := range items {
		value, present := item.Integers[needed]
		if !present || value < 0 || item.Others[needed] || item.Others[other] || item.Integers[other] < 0 {
			return nil, false
		}
	}
	return items, true
}
