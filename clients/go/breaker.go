package tidegate

import (
	"sync"
	"time"
)

// breaker decides when the server is no longer asked.
//
//	closed --failures in a row--> open --pause--> one call tries --reply--> closed
//	                               ^                    |
//	                               +------ failure -----+
//
// What the caller gave up is neither: it only returns the right to try.
type breaker struct {
	failures int
	pause    time.Duration

	mutex  sync.Mutex
	inRow  int
	open   bool
	trying bool
	until  time.Time
}

// outcome is how a call that was admitted ended.
type outcome int

const (
	replied outcome = iota
	unanswered
	abandoned
)

// admits says whether the server may be asked now. Who is admitted tells how it ended.
func (breaker *breaker) admits(now time.Time) bool {
	breaker.mutex.Lock()
	defer breaker.mutex.Unlock()
	if !breaker.open {
		return true
	}
	if breaker.trying || now.Before(breaker.until) {
		return false
	}
	breaker.trying = true
	return true
}

func (breaker *breaker) ended(how outcome, now time.Time) {
	breaker.mutex.Lock()
	defer breaker.mutex.Unlock()
	switch how {
	case replied:
		breaker.inRow, breaker.open, breaker.trying = 0, false, false
	case abandoned:
		breaker.trying = false
	case unanswered:
		if breaker.open && !breaker.trying {
			return // It was under way when the breaker opened.
		}
		breaker.inRow++
		if breaker.open || breaker.inRow >= breaker.failures {
			breaker.open, breaker.trying = true, false
			breaker.until = now.Add(breaker.pause)
		}
	}
}

// isOpen says whether calls are answered without the server.
func (breaker *breaker) isOpen() bool {
	breaker.mutex.Lock()
	defer breaker.mutex.Unlock()
	return breaker.open
}
