package tidegate

import (
	"testing"
	"time"
)

func TestARememberedDenialStatesWhatIsLeftOfItsWait(t *testing.T) {
	cache := newDenials(10, time.Minute)
	now := time.Now()
	request := Ask(Attributes{"client_id": "a"})
	wait, ofPart := int64(1_200_000), int64(1_200_000)
	denied := Decision{
		RetryAfterMS: &wait, ResetMS: 3_600_000, RateLimit: `"three";r=0;t=1200`, RateLimitPolicy: `"three";q=3;w=3600`,
		Policies: []PolicyPart{{Policy: "three", RetryAfterMS: &ofPart, ResetMS: 3_600_000}},
	}
	cache.remember(&request, &denied, cache.asked(), now)
	found, _ := cache.find(&request, now.Add(30_500*time.Millisecond))
	if *found.RetryAfterMS != 1_169_500 || found.RetryAfterSeconds != 1_170 || found.ResetMS != 3_569_500 {
		t.Errorf("after 30.5 s of 1,200 it says %d ms, %d s, %d ms", *found.RetryAfterMS, found.RetryAfterSeconds, found.ResetMS)
	}
	if part := found.Policies[0]; *part.RetryAfterMS != 1_169_500 || part.ResetMS != 3_569_500 {
		t.Errorf("its part says %d ms and %d ms", *part.RetryAfterMS, part.ResetMS)
	}
	if found.RateLimit != "" || found.RateLimitPolicy == "" {
		t.Errorf("its fields are %q and %q", found.RateLimit, found.RateLimitPolicy)
	}
	if _, still := cache.find(&request, now.Add(time.Minute)); still {
		t.Error("it is kept for longer than a minute")
	}
}

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
