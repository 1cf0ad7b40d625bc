package rendezvous

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/wire"
)

const limit = 30 * time.Second // for what should take a moment

var testSecurity = wire.Security{Token: "0123456789abcdef0123456789abcdef"}

// journal remembers what was logged.
type journal struct {
	mu    sync.Mutex
	lines []string
	added chan struct{}
}

func newJournal() *journal { return &journal{added: make(chan struct{}, 1)} }

func (j *journal) logf(format string, args ...any) {
	j.mu.Lock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	j.mu.Unlock()
	select {
	case j.added <- struct{}{}:
	default:
	}
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

func (j *journal) count(part string) int { return strings.Count(j.text(), part) }

// waitFor waits until something has been logged.
func (j *journal) waitFor(t *testing.T, part string) {
	t.Helper()
	deadline := time.After(limit)
	for !strings.Contains(j.text(), part) {
		select {
		case <-j.added:
		case <-deadline:
			t.Fatalf("%q was not logged:\n%s", part, j.text())
		}
	}
}

// serve makes a server on the loopback interface.
func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Security = testSecurity
	s, err := NewServer("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// jobAt describes worker i of n to Join.
func jobAt(s *Server, i, n int) Options {
	return Options{URL: "tcp://" + s.Addr().String(), Security: testSecurity, Workers: n, Index: i, Host: fmt.Sprintf("host%d", i), Timeout: limit}
}

// joinAll joins all jobs at the same time.
func joinAll(ctx context.Context, jobs []Options) ([]*Member, []error) {
	members, errs := make([]*Member, len(jobs)), make([]error, len(jobs))
	var group sync.WaitGroup
	for i, j := range jobs {
		group.Go(func() { members[i], errs[i] = Join(ctx, j) })
	}
	group.Wait()
	return members, errs
}

// started returns a running job of n workers.
func started(t *testing.T, n int, change func(*ServerOptions, []Options)) (*Server, []*Member) {
	t.Helper()
	o := ServerOptions{Workers: n, Logf: t.Logf}
	jobs := make([]Options, n)
	if change != nil {
		change(&o, jobs)
	}
	s := serve(t, o)
	for i := range jobs {
		logf := jobs[i].Logf
		jobs[i] = jobAt(s, i, n)
		jobs[i].Logf = logf
	}
	members, errs := joinAll(t.Context(), jobs)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
		t.Cleanup(func() { members[i].Leave() })
	}
	return s, members
}

// leaveAll lets all workers leave, and checks that the job went well.
func leaveAll(t *testing.T, members []*Member) {
	t.Helper()
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			if err := m.Leave(); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	group.Wait()
}

// onAll calls f for all members at the same time.
func onAll(members []*Member, f func(m *Member) error) []error {
	errs := make([]error, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() { errs[i] = f(m) })
	}
	group.Wait()
	return errs
}

// wantFailed waits until a member's job has failed, with all these words.
func wantFailed(t *testing.T, m *Member, words ...string) {
	t.Helper()
	select {
	case <-m.Done():
		wantError(t, m.Err(), words...)
	case <-time.After(limit):
		t.Errorf("worker %d does not know that the job failed", m.Index())
	}
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", words)
		return
	}
	for _, w := range append(words, "epl: ") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q has no %q", err, w)
		}
	}
	if strings.Count(err.Error(), "epl: ") != 1 {
		t.Errorf("error %q is not one sentence of ours", err)
	}
}

func wantWell(t *testing.T, members []*Member) {
	t.Helper()
	for _, m := range members {
		if err := m.Err(); err != nil {
			t.Errorf("worker %d: %v", m.Index(), err)
		}
	}
}

// noLeak fails the test if goroutines are left at its end. It is called before anything else.
func noLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(limit / 3); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<18)
				t.Errorf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// within returns a context that ends if a test takes too long.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// writer collects bytes.
type writer []byte

func (w *writer) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}
