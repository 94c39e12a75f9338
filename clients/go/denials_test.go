package tidegate

import (
	"testing"
	"time"
)

func TestADenialThatIsOlderThanARefundIsNotKept(t *testing.T) {
	cache := newDenials(10, time.Minute)
	now := time.Now()
	request := Ask(Attributes{"client_id": "a"})
	wait := int64(1000)
	denied := Decision{RetryAfterMS: &wait}
	asked := cache.asked()
	cache.forget(request.Attributes)
	cache.remember(&request, &denied, asked, now)
	if _, found := cache.find(&request, now); found {
		t.Error("a denial that was asked for before the refund is kept")
	}
	cache.remember(&request, &denied, cache.asked(), now)
	if _, found := cache.find(&request, now); !found {
		t.Error("a denial that was asked for after the refund is not kept")
	}
	if _, found := cache.find(&request, now.Add(time.Second)); found {
		t.Error("a denial is kept beyond its wait")
	}
}
