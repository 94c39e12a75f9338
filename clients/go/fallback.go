package tidegate

import (
	"container/list"
	"math"
	"sync"
	"time"
)

// Mode says what is answered when the server gives no answer.
type Mode string

// What is answered when the server gives no answer.
const (
	// FailOpen allows. It is the default.
	FailOpen Mode = "open"
	// FailClosed denies.
	FailClosed Mode = "closed"
	// FailLocal counts in this process, by [Options.Fallback].
	FailLocal Mode = "local"
)

// Fallback is the limit that this process keeps by itself while the server gives no answer: a token bucket
// for each value of Key. With n processes and a share of 1/n, all of them together stay within the limit.
type Fallback struct {
	// Limit is how many units come back per Window, over all processes.
	Limit int64
	// Window is at least a second.
	Window time.Duration
	// Share is this process' part, above 0 and at most 1. It holds at least one unit, whatever its share.
	Share float64
	// Key names the attributes that are counted by.
	Key []string
	// Keys is how many are kept; then the one unseen for longest is forgotten.
	Keys int
}

// roundingError is what a product such as 100 x 0.29 may be short of the whole number that it stands for.
const roundingError = 1e-9

// fallback answers without the server.
type fallback struct {
	mode   Mode
	limit  Fallback
	units  int64
	ofUnit time.Duration

	mutex   sync.Mutex
	order   *list.List
	byKey   map[string]*list.Element
	evicted uint64
}

// bucket says when it is full again: the arithmetic of a token bucket (GCRA).
type bucket struct {
	key  string
	full time.Time
}

func newFallback(mode Mode, limit Fallback) *fallback {
	made := &fallback{mode: mode, limit: limit, order: list.New(), byKey: map[string]*list.Element{}}
	if mode == FailLocal {
		made.units = max(1, int64(math.Floor(float64(limit.Limit)*limit.Share+roundingError)))
		made.ofUnit = max(1, limit.Window/time.Duration(made.units))
	}
	return made
}

// answer is the decision that stands in for the server's.
func (fallback *fallback) answer(request *Request, now time.Time, failure Failure) Decision {
	decision := Decision{
		Source: FromFallback, Failure: failure, Degraded: string(fallback.mode), Policies: []PolicyPart{},
	}
	switch fallback.mode {
	case FailClosed:
		decision.waitFor(time.Second)
	case FailLocal:
		fallback.count(request, now, &decision)
	default:
		decision.Allowed = true
	}
	return decision
}

func (fallback *fallback) count(request *Request, now time.Time, decision *Decision) {
	decision.Limit = fallback.units
	known := make(Attributes, len(fallback.limit.Key))
	for _, name := range fallback.limit.Key {
		known[name] = request.Attributes[name]
	}
	key := canonical(known)
	fallback.mutex.Lock()
	defer fallback.mutex.Unlock()
	element, found := fallback.byKey[key]
	debt := time.Duration(0)
	if found {
		fallback.order.MoveToFront(element)
		debt = max(0, element.Value.(*bucket).full.Sub(now))
	}
	whole := fallback.ofUnit * time.Duration(fallback.units)
	if request.Cost > fallback.units || request.Cost < 0 {
		decision.RetryAfterSeconds = int64(math.Ceil(fallback.limit.Window.Seconds()))
	} else if wait := debt + fallback.ofUnit*time.Duration(request.Cost) - whole; wait > 0 {
		decision.waitFor(wait)
	} else {
		decision.Allowed = true
		debt += fallback.ofUnit * time.Duration(request.Cost)
	}
	decision.Remaining = int64((whole - debt) / fallback.ofUnit)
	decision.ResetMS = ceilMS(debt)
	if decision.Allowed && request.spends() {
		fallback.keep(key, element, now.Add(debt))
	}
}

func (fallback *fallback) keep(key string, element *list.Element, full time.Time) {
	if element != nil {
		element.Value.(*bucket).full = full
		return
	}
	if fallback.order.Len() >= fallback.limit.Keys {
		fallback.evicted++
		delete(fallback.byKey, fallback.order.Remove(fallback.order.Back()).(*bucket).key)
	}
	fallback.byKey[key] = fallback.order.PushFront(&bucket{key: key, full: full})
}

func (fallback *fallback) evictions() uint64 {
	fallback.mutex.Lock()
	defer fallback.mutex.Unlock()
	return fallback.evicted
}
