package worker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/rendezvous"
)

// join makes this process, or a part of it, worker i of n. More variables may be given.
func join(i, n int, url, timeout string, environment map[string]string) (*Job, error) {
	cfg, err := config.New(map[string]any{"communication.timeout": timeout})
	if err != nil {
		return nil, err
	}
	return joinWith(cfg, i, n, url, environment)
}

func joinWith(cfg *config.Config, i, n int, url string, environment map[string]string) (*Job, error) {
	all := map[string]string{cluster.EnvNumWorkers: strconv.Itoa(n), cluster.EnvWorkerIndex: strconv.Itoa(i), rendezvous.EnvURL: url}
	maps.Copy(all, environment)
	lookup := func(name string) (string, bool) { value, ok := all[name]; return value, ok }
	c, err := cluster.FromEnvironment(lookup, 0, nil)
	if err != nil {
		return nil, err
	}
	return Join(Options{Cluster: c, Config: cfg, Lookup: lookup})
}

// joined returns the workers of a job that are all in this process.
func joined(t *testing.T, n int, timeout string, environment map[string]string) []*Job {
	t.Helper()
	url := "file://" + filepath.Join(t.TempDir(), "job")
	jobs, errs := make([]*Job, n), make([]error, n)
	onAll(n, func(i int) { jobs[i], errs[i] = join(i, n, url, timeout, environment) })
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
	}
	t.Cleanup(func() { onAll(n, func(i int) { jobs[i].Leave() }) })
	return jobs
}

// onAll calls f for all workers at the same time.
func onAll(n int, f func(worker int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func offer(j *Job, name string, version uint64, data []byte) (withdraw func()) {
	return j.Offer(name, version, func() ([]byte, func(), error) { return data, func() {}, nil })
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q has no %q", err, w)
		}
	}
	if !strings.HasPrefix(err.Error(), "epl: ") || strings.Count(err.Error(), "epl: ") != 1 {
		t.Errorf("error %q is not one sentence of ours", err)
	}
}

func TestEveryWorkerReadsTheVariablesOfAllOthers(t *testing.T) {
	const n = 3
	jobs := joined(t, n, "1m", nil)
	for i, j := range jobs {
		if made := j.lines.count.Load(); made != n-1 {
			t.Errorf("worker %d has opened %d connections at the start: one to each other is needed later", i, made)
		}
	}
	value := func(worker, variable int) []byte {
		return bytes.Repeat([]byte{byte(1 + worker), byte(variable)}, 10+100_000*variable)
	}
	onAll(n, func(me int) {
		for variable := range 5 {
			for other := range n {
				if other == me {
					offer(jobs[me], fmt.Sprint("variable ", variable), 1, value(me, variable))
					continue
				}
				got := make([]byte, len(value(other, variable)))
				if err := jobs[me].Fetch(other, fmt.Sprint("variable ", variable), 1, got); err != nil {
					t.Errorf("worker %d: %v", me, err)
				} else if !bytes.Equal(got, value(other, variable)) {
					t.Errorf("worker %d has other bytes of worker %d", me, other)
				}
			}
		}
	})
	for i, j := range jobs {
		if made := j.lines.count.Load(); made != n-1 {
			t.Errorf("worker %d made %d connections: one to each other would have done", i, made)
		}
	}
}

func TestConnectionsForVariablesAreEncryptedIfTheJobIs(t *testing.T) {
	cert, key := certificate(t)
	jobs := joined(t, 2, "1m", map[string]string{rendezvous.EnvTLSCert: cert, rendezvous.EnvTLSKey: key, rendezvous.EnvTLSCA: cert})
	for i, j := range jobs {
		offer(jobs[1-i], "w", 1, []byte("abc"))
		got := make([]byte, 3)
		if err := j.Fetch(1-i, "w", 1, got); err != nil || string(got) != "abc" {
			t.Errorf("%q, %v", got, err)
		}
		line := j.lines.take(1 - i)
		if _, ok := line.Conn.(watched).Conn.(*tls.Conn); !ok {
			t.Error("a connection is not encrypted")
		}
		j.lines.keep(1-i, line)
	}
}

func TestAReadThatCannotBeNamesTheWorkerAndTheVariable(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "2s", nil)
	offer(jobs[1], "w", 2, []byte("abc"))
	for version, words := range map[uint64][]string{
		1: {"version 1", "not there any more", "version 2"},
		2: {"3 bytes", "4 were asked for"},
		3: {"version 3", "has not been offered, version 2 is the newest", "waited for 2s (communication.timeout)"},
	} {
		wantError(t, jobs[0].Fetch(1, "w", version, make([]byte, 4)), append(words, `worker 0 cannot read "w" of worker 1 (`)...)
	}
	for _, worker := range []int{0, 2, -1} {
		wantError(t, jobs[0].Fetch(worker, "w", 2, nil), "internal error", `"w"`)
	}
}

func TestABusyWorkerIsWaitedFor(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "3s", nil) // some signs of life
	over := jobs[1].Busy("compiling")
	done := make(chan error)
	go func() { done <- jobs[0].Fetch(1, "w", 1, make([]byte, 3)) }()
	select {
	case err := <-done:
		t.Fatalf("it was not waited for: %v", err)
	case <-time.After(jobs[0].timeout + 2*time.Second):
	}
	offer(jobs[1], "w", 1, []byte("abc"))
	over()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAFailureOfTheJobEndsReadsWithItsReason(t *testing.T) {
	for _, connected := range []bool{false, true} {
		jobs := joined(t, 3, "5m", nil)
		done := make(chan error)
		if connected {
			offer(jobs[1], "w", 1, nil)
			if err := jobs[0].Fetch(1, "w", 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		go func() { done <- jobs[0].Fetch(1, "w", 2, nil) }()
		jobs[2].World.Abort(errors.New("epl: the disk is full"))
		wantError(t, <-done, `worker 0 cannot read "w" of worker 1`, "worker 2 stopped: the disk is full")
	}
}

func TestABrokenConnectionNamesTheWorker(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "5m", nil)
	offer(jobs[1], "w", 1, nil)
	if err := jobs[0].Fetch(1, "w", 1, nil); err != nil {
		t.Fatal(err)
	}
	jobs[1].server.Close()
	wantError(t, jobs[0].Fetch(1, "w", 2, nil), `worker 0 cannot read "w" of worker 1 (`, "see what happened to that worker")
}

// meetVariable makes this test binary worker 1 of a job that meets there, until it is killed.
const meetVariable = "EPLTEST_MEET"

func TestAWorkerThatDiesIsNamedByItsReaders(t *testing.T) {
	if url := os.Getenv(meetVariable); url != "" {
		j, err := join(1, 2, url, "5m", nil)
		if err != nil {
			t.Fatal(err)
		}
		<-j.member.Done()
		return
	}
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "job")
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), meetVariable+"="+url)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	j, err := join(0, 2, url, "5m", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Leave()
	done := make(chan error)
	go func() { done <- j.Fetch(1, "w", 1, nil) }()
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-done, `worker 0 cannot read "w" of worker 1 (`, "is gone")
}

func TestVariablesStayReadableUntilAllLeave(t *testing.T) {
	jobs := joined(t, 3, "1m", nil)
	for _, j := range jobs {
		offer(j, "w", 1, []byte("abc"))
	}
	left := make(chan error, 2)
	for _, j := range jobs[1:] {
		go func() { left <- j.Leave() }()
	}
	for range 100 {
		for worker := 1; worker < 3; worker++ {
			if err := jobs[0].Fetch(worker, "w", 1, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-left:
		t.Fatal("a worker has left")
	default:
	}
	if err := jobs[0].Leave(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
	wantError(t, jobs[0].Fetch(1, "w", 1, nil), "has left")
}

// certificate makes a certificate that is its own authority, as PEM files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	secretDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secretDER)
}
