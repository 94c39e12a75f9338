package tidegate

import (
	"context"
	"sync"
	"time"
)

// maxWaiting is how many calls wait for a batch.
const maxWaiting = 10_000

// batcher sends calls that wait while others are on their way together. No call waits for a timer: on an idle
// client a call goes at once and alone, and batches grow with the load.
type batcher struct {
	client *Client

	mutex   sync.Mutex
	waiting []*waiter
	running bool
}

// waiter is one call. Its context ends with its caller, who takes no answer after that; what has not been sent
// by then is not sent.
type waiter struct {
	ctx     context.Context
	request *Request
	answer  chan batchAnswer
}

// togetherKey marks the context of calls that are sent together, which is nobody's own.
type togetherKey struct{}

type batchAnswer struct {
	decision Decision
	err      error
}

func (batcher *batcher) ask(ctx context.Context, request *Request) (Decision, error) {
	call := &waiter{ctx: ctx, request: request, answer: make(chan batchAnswer, 1)}
	if !batcher.enter(call) {
		batcher.client.full.Add(1)
		return Decision{}, failed(FailedTimeout, errPlaces)
	}
	select {
	case answer := <-call.answer:
		return answer.decision, answer.err
	case <-ctx.Done():
		return Decision{}, interrupted(ctx, ctx.Err())
	}
}

func (batcher *batcher) enter(call *waiter) bool {
	batcher.mutex.Lock()
	defer batcher.mutex.Unlock()
	if len(batcher.waiting) >= maxWaiting {
		return false
	}
	batcher.waiting = append(batcher.waiting, call)
	if !batcher.running {
		batcher.running = true
		go batcher.run()
	}
	return true
}

// run sends batches until nobody waits.
func (batcher *batcher) run() {
	for {
		calls := batcher.next()
		if calls == nil {
			return
		}
		batcher.send(calls)
	}
}

// next takes the calls of one batch; nil ends the goroutine.
func (batcher *batcher) next() []*waiter {
	batcher.mutex.Lock()
	defer batcher.mutex.Unlock()
	var calls []*waiter
	taken := 0
	for _, call := range batcher.waiting {
		if len(calls) == MaxBatch {
			break
		}
		taken++
		if call.ctx.Err() == nil {
			calls = append(calls, call)
		}
	}
	clear(batcher.waiting[:taken])
	batcher.waiting = batcher.waiting[taken:]
	if calls == nil {
		batcher.running = false
	}
	return calls
}

// send asks for all of them, until the last of their deadlines. A batch that is refused was not charged: then
// each is asked alone, and one caller's mistake is not its neighbours'.
func (batcher *batcher) send(calls []*waiter) {
	requests := make([]*Request, len(calls))
	var last time.Time
	for index, call := range calls {
		requests[index] = call.request
		if deadline, _ := call.ctx.Deadline(); deadline.After(last) {
			last = deadline
		}
	}
	together := context.WithValue(context.Background(), togetherKey{}, true)
	ctx, cancel := context.WithDeadlineCause(together, last, errDeadline)
	defer cancel()
	decisions, err := batcher.client.decideTogether(ctx, requests)
	if len(calls) > 1 && isInvalid(err) {
		batcher.sendAlone(calls)
		return
	}
	for index, call := range calls {
		answer := batchAnswer{err: err}
		if err == nil {
			answer.decision = decisions[index]
		}
		call.answer <- answer
	}
}

func (batcher *batcher) sendAlone(calls []*waiter) {
	var group sync.WaitGroup
	for _, call := range calls {
		group.Add(1)
		go func() {
			defer group.Done()
			decision, err := batcher.client.decideOne(call.ctx, call.request)
			call.answer <- batchAnswer{decision: decision, err: err}
		}()
	}
	group.Wait()
}
