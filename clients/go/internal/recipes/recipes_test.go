// Package recipes has the recipes of clients/RECIPES.md: their policies on the real server, and their code as it stands there.
package recipes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// What the application has.
var (
	verify   func(account, password string) bool
	lookUp   func(apiKey string) (customer, tier string)
	count    func(prompt string) int64
	generate func(prompt string, maxTokens int64) (text string, used int64, err error)
	post     func(receiver, body string) error
	work     func(job string, renew func(context.Context) (time.Duration, bool)) error
)

// limits has options.OnFailure = tidegate.FailClosed.
func login(ctx context.Context, limits *tidegate.Client, account, ip, password string) (string, error) {
	who := tidegate.Attributes{"action": "login", "account": strings.ToLower(account), "ip": ip}
	decision, err := limits.Allow(ctx, who)
	if err != nil {
		return "", err
	}
	if !decision.Allowed {
		return fmt.Sprintf("try again in %d s", decision.RetryAfterSeconds), nil
	}
	if !verify(account, password) {
		return "wrong", nil
	}
	_, err = limits.Refund(ctx, who)
	return "welcome", err
}

func call(ctx context.Context, limits *tidegate.Client, apiKey string) (tidegate.Decision, error) {
	customer, tier := lookUp(apiKey)
	return limits.Allow(ctx, tidegate.Attributes{"client_id": customer, "tier": tier})
}

func complete(ctx context.Context, limits *tidegate.Client, customer, prompt string, maxTokens int64) (string, error) {
	tokens := tidegate.Attributes{"client_id": customer, "unit": "tokens"}
	permit, err := limits.Acquire(ctx, tidegate.Attributes{"client_id": customer, "unit": "requests"})
	if err != nil {
		return "", err
	}
	defer permit.Release(ctx)
	if !permit.Allowed {
		return "too many requests at once", nil
	}
	charge, err := limits.Reserve(ctx, tokens, count(prompt)+maxTokens)
	if err != nil {
		return "", err
	}
	if decision := charge.Decision; !decision.Allowed {
		if decision.RetryAfterMS == nil {
			return "too long", nil
		}
		return fmt.Sprintf("wait %d s", decision.RetryAfterSeconds), nil
	}
	text, used, err := generate(prompt, maxTokens)
	charge.Settle(ctx, used) // the rest comes back, and all of it where nothing was used
	return text, err
}

// deliver delivers, or says after which time to try again.
func deliver(ctx context.Context, limits *tidegate.Client, receiver, body string) (time.Duration, error) {
	decision, err := limits.Allow(ctx, tidegate.Attributes{"action": "webhook", "receiver": receiver})
	if err != nil {
		return 0, err
	}
	if !decision.Allowed {
		if decision.RetryAfterMS == nil {
			return time.Minute, nil
		}
		return time.Duration(*decision.RetryAfterMS) * time.Millisecond, nil
	}
	time.Sleep(time.Duration(decision.DelayMS) * time.Millisecond)
	return 0, post(receiver, body)
}

// limits has options.OnFailure = tidegate.FailClosed.
func run(ctx context.Context, limits *tidegate.Client, job string) (string, error) {
	permit, err := limits.Acquire(ctx, tidegate.Attributes{"action": "cron", "job": job})
	if err != nil {
		return "", err
	}
	defer permit.Release(ctx)
	if !permit.Allowed {
		return "another runs it", nil
	}
	once := tidegate.Attributes{"action": "cron-run", "job": job}
	decision, err := limits.Allow(ctx, once)
	if err != nil {
		return "", err
	}
	if !decision.Allowed {
		return "done today", nil
	}
	if failure := work(job, permit.Renew); failure != nil {
		_, err = limits.Refund(ctx, once)
		return "", errors.Join(failure, err)
	}
	return "ran", nil
}

func recipesPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testserver.Clients(), "RECIPES.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func blocksOf(page, language string) []string {
	var found []string
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(page, -1) {
		found = append(found, block[1])
	}
	return found
}

// withRecipes is a client of a server that has the policies of all recipes.
func withRecipes(t *testing.T) *tidegate.Client {
	t.Helper()
	server := testserver.StartWith(t, strings.Join(blocksOf(recipesPage(t), "toml"), "\n"))
	return recipesClient(t, server.URL)
}

func recipesClient(t *testing.T, url string) *tidegate.Client {
	t.Helper()
	client, err := tidegate.New(func(options *tidegate.Options) {
		options.URL, options.OnFailure = url, tidegate.FailClosed
		options.Deadline = 10 * time.Second // for a busy machine
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestTheRecipesAreThoseOfThePage(t *testing.T) {
	source, err := os.ReadFile("recipes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(recipesPage(t), "go")
	if len(blocks) != 5 {
		t.Errorf("%d recipes in Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(source), block) {
			t.Errorf("recipes_test.go has not what RECIPES.md shows:\n%s", block)
		}
	}
}

func expect(t *testing.T, result string, err error, pattern string) {
	t.Helper()
	if err != nil || !regexp.MustCompile("^"+pattern+"$").MatchString(result) {
		t.Errorf("%q, %v: expected %s", result, err, pattern)
	}
}

func TestALoginCountsFailuresOnly(t *testing.T) {
	limits, ctx := withRecipes(t), context.Background()
	verify = func(_, password string) bool { return password == "right" }
	attempt := func(limits *tidegate.Client, account, ip, password, pattern string) {
		t.Helper()
		result, err := login(ctx, limits, account, ip, password)
		expect(t, result, err, pattern)
	}
	for range 7 {
		attempt(limits, "Ann", "10.0.0.1", "right", "welcome")
	}
	for n := range 5 {
		attempt(limits, "ann", fmt.Sprintf("10.0.1.%d", n), "guess", "wrong")
	}
	attempt(limits, "ANN", "10.0.2.1", "right", `try again in \d+ s`)
	for n := range 20 {
		attempt(limits, fmt.Sprintf("user%d", n), "10.0.3.1", "guess", "wrong")
	}
	attempt(limits, "user99", "10.0.3.1", "right", "try again.*")
	attempt(limits, "user99", "10.0.3.2", "right", "welcome")
	attempt(recipesClient(t, testserver.Nobody(t)), "ann", "10.0.0.1", "right", "try again.*")
}

func TestAKeyHasTheLimitOfItsTier(t *testing.T) {
	limits := withRecipes(t)
	lookUp = func(apiKey string) (string, string) {
		if apiKey == "k1" {
			return "acme", "free"
		}
		return "apex", "pro"
	}
	for n := range 12 {
		free, err := call(context.Background(), limits, "k1")
		if err != nil || free.Allowed != (n < 10) {
			t.Errorf("request %d of the free tier: %v, %v", n+1, free.Allowed, err)
		}
		pro, err := call(context.Background(), limits, "k2")
		if err != nil || !pro.Allowed || pro.Policy != "pro" {
			t.Errorf("request %d of the other: %v by %s, %v", n+1, pro.Allowed, pro.Policy, err)
		}
	}
}

func TestTokensThatWereNotUsedComeBack(t *testing.T) {
	limits, ctx := withRecipes(t), context.Background()
	broken := errors.New("broken")
	count = func(prompt string) int64 { return int64(len(prompt)) }
	generate = func(prompt string, _ int64) (string, int64, error) {
		if prompt == "broken" {
			return "", 0, broken
		}
		return "about " + prompt, 100, nil
	}
	answer := func(maxTokens int64, pattern string) {
		t.Helper()
		result, err := complete(ctx, limits, "acme", "tides", maxTokens)
		expect(t, result, err, pattern)
	}
	for range 3 {
		answer(9_000, "about tides")
	}
	if _, err := complete(ctx, limits, "acme", "broken", 9_000); !errors.Is(err, broken) {
		t.Error(err)
	}
	answer(9_000, "about tides")
	answer(20_000, "too long")
	answer(9_900, `wait \d+ s`)
	requests := tidegate.Attributes{"client_id": "acme", "unit": "requests"}
	var held []*tidegate.Permit
	for range 2 {
		permit, err := limits.Acquire(ctx, requests)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, permit)
	}
	answer(10, "too many requests at once")
	for _, permit := range held {
		permit.Release(ctx)
	}
	answer(10, "about tides")
}

func TestWebhooksLeaveAtThePaceOfTheirReceiver(t *testing.T) {
	limits := withRecipes(t)
	var lock sync.Mutex
	sent, now := 0, 0
	post = func(string, string) error {
		lock.Lock()
		defer lock.Unlock()
		sent++
		return nil
	}
	var all sync.WaitGroup
	for range 60 {
		all.Add(1)
		go func() {
			defer all.Done()
			wait, err := deliver(context.Background(), limits, "slow.example", "x")
			if err != nil || wait < 0 {
				t.Error(wait, err)
			}
			lock.Lock()
			defer lock.Unlock()
			if wait == 0 {
				now++
			}
		}()
	}
	all.Wait()
	// The bucket holds 20; ten a second leave it.
	if now < 20 || now >= 60 || sent != now {
		t.Errorf("%d of 60 were told to go, and %d went", now, sent)
	}
	if wait, err := deliver(context.Background(), limits, "other.example", "x"); wait != 0 || err != nil {
		t.Error(wait, err)
	}
}

func TestAJobRunsOnceOnOneMachine(t *testing.T) {
	limits, ctx := withRecipes(t), context.Background()
	broken := errors.New("broken")
	failures := 0
	work = func(job string, renew func(context.Context) (time.Duration, bool)) error {
		if _, held := renew(ctx); !held {
			t.Error("the permit cannot be renewed")
		}
		result, err := run(ctx, limits, job)
		expect(t, result, err, "another runs it")
		if job == "broken" && failures == 0 {
			failures++
			return broken
		}
		return nil
	}
	attempt := func(limits *tidegate.Client, job, pattern string) {
		t.Helper()
		result, err := run(ctx, limits, job)
		expect(t, result, err, pattern)
	}
	attempt(limits, "report", "ran")
	// It may have become tomorrow meanwhile.
	attempt(limits, "report", "done today|ran")
	if _, err := run(ctx, limits, "broken"); !errors.Is(err, broken) {
		t.Error(err)
	}
	attempt(limits, "broken", "ran")
	attempt(recipesClient(t, testserver.Nobody(t)), "report", "another runs it")
}
