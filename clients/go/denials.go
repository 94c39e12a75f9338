package tidegate

import (
	"container/list"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxCachedKeyBytes bounds one entry of the cache of denials; longer requests always go to the server.
const maxCachedKeyBytes = 1024

// denials remembers who was denied, until the wait is over: who is denied costs no round trip until then.
// It holds at most `entries`; then the oldest makes room. Of each set of attributes it keeps one denial, which
// holds for its cost and for higher ones. A refund forgets the denial of its attributes, and no denial is kept that was
// asked for before one: it may be older.
type denials struct {
	entries int
	longest time.Duration

	mutex   sync.Mutex
	order   *list.List
	byKey   map[string]*list.Element
	evicted uint64
	// refunds counts those that are through.
	refunds uint64
}

type denial struct {
	key      string
	cost     int64
	limits   *Limits
	decision Decision
	since    time.Time
	// until is when it is forgotten, which may be before its wait is over.
	until time.Time
}

func newDenials(entries int, longest time.Duration) *denials {
	return &denials{entries: entries, longest: longest, order: list.New(), byKey: map[string]*list.Element{}}
}

// canonical writes attributes in one way: sorted, each with its lengths, so that no two of them look alike.
func canonical(attributes Attributes) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		for _, word := range [2]string{name, attributes[name]} {
			text.WriteString(strconv.Itoa(len(word)))
			text.WriteByte(':')
			text.WriteString(word)
		}
	}
	return text.String()
}

// find returns the denial that still holds for a request, with what is left of its wait.
func (cache *denials) find(request *Request, now time.Time) (Decision, bool) {
	if cache.entries == 0 || !request.spends() {
		return Decision{}, false
	}
	key := canonical(request.Attributes)
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	element, found := cache.byKey[key]
	if !found {
		return Decision{}, false
	}
	entry := element.Value.(*denial)
	if !now.Before(entry.until) {
		cache.remove(element)
		return Decision{}, false
	}
	if request.Cost < entry.cost || !request.Limits.same(entry.limits) {
		return Decision{}, false
	}
	return entry.decision.later(now.Sub(entry.since)), true
}

// later is a denial some time after it was made: every time in it is so much shorter, and the field that states one is
// left out.
func (decision Decision) later(passed time.Duration) Decision {
	left := func(milliseconds int64, least time.Duration) time.Duration {
		return max(least, time.Duration(milliseconds)*time.Millisecond-passed)
	}
	decision.Source, decision.RateLimit = FromCache, ""
	decision.waitFor(left(*decision.RetryAfterMS, time.Millisecond))
	decision.ResetMS = ceilMS(left(decision.ResetMS, 0))
	decision.Policies = slices.Clone(decision.Policies)
	for index := range decision.Policies {
		part := &decision.Policies[index]
		part.ResetMS = ceilMS(left(part.ResetMS, 0))
		if part.RetryAfterMS != nil {
			wait := ceilMS(left(*part.RetryAfterMS, time.Millisecond))
			part.RetryAfterMS = &wait
		}
	}
	return decision
}

// asked is the time of a question, for remember.
func (cache *denials) asked() uint64 {
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	return cache.refunds
}

// remember keeps a denial of the server. A denial without a wait, by a server without its store, or by a
// concurrency limit (any release ends it) is not kept.
func (cache *denials) remember(request *Request, decision *Decision, asked uint64, now time.Time) {
	wait, waits := decision.RetryAfter()
	if cache.entries == 0 || !request.spends() || !waits || decision.Degraded != "" || decision.endsWithRelease() {
		return
	}
	key := canonical(request.Attributes)
	if len(key) > maxCachedKeyBytes {
		return
	}
	entry := &denial{
		key: key, cost: request.Cost, limits: request.Limits, decision: *decision,
		since: now, until: now.Add(min(wait, cache.longest)),
	}
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	if cache.refunds != asked {
		return
	}
	if element, found := cache.byKey[key]; found {
		cache.remove(element)
	} else if cache.order.Len() >= cache.entries {
		cache.evicted++
		cache.remove(cache.order.Back())
	}
	cache.byKey[key] = cache.order.PushFront(entry)
}

// forget drops what is remembered of these attributes.
func (cache *denials) forget(attributes Attributes) {
	if cache.entries == 0 {
		return
	}
	key := canonical(attributes)
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	cache.refunds++
	if element, found := cache.byKey[key]; found {
		cache.remove(element)
	}
}

func (cache *denials) remove(element *list.Element) {
	delete(cache.byKey, cache.order.Remove(element).(*denial).key)
}

func (cache *denials) evictions() uint64 {
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	return cache.evicted
}

// waitFor states a wait in both units, rounded up.
func (decision *Decision) waitFor(wait time.Duration) {
	milliseconds := ceilMS(wait)
	decision.RetryAfterMS = &milliseconds
	decision.RetryAfterSeconds = (milliseconds + 999) / 1000
}

func ceilMS(wait time.Duration) int64 {
	return int64((wait + time.Millisecond - 1) / time.Millisecond)
}

// endsWithRelease says whether a concurrency limit denied: any release may end that.
func (decision *Decision) endsWithRelease() bool {
	return slices.ContainsFunc(decision.Policies, func(part PolicyPart) bool {
		return part.Concurrent && !part.Allowed && part.Mode == "enforce"
	})
}
