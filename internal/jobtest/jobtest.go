// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package jobtest has what the tests of wire, rendezvous, serve, worker and launch have in common, and those of whole jobs. It is for tests.
package jobtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Limit is for what should take a moment.
const Limit = 30 * time.Second

// Within returns a context that ends if a test takes too long.
func Within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// NoLeak fails the test if goroutines are left at its end. It is called before anything else.
func NoLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(Limit / 3); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<18)
				t.Errorf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// WantError checks that an error is one sentence of ours, with all these words.
func WantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", words)
		return
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

// Main is the TestMain of a test binary that a launcher starts again: as its guard, and as workers, which do what a variable says as JSON. Without either it runs the tests.
func Main[T any](m *testing.M, guard func(io.Reader), variable string, work func(*T) error) {
	if len(os.Args) > 1 && os.Args[1] == "--guard" {
		guard(os.Stdin)
		os.Exit(0)
	}
	text := os.Getenv(variable)
	if text == "" {
		flag.Parse()
		os.Exit(m.Run())
	}
	log.SetFlags(0)
	var what T
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		log.Fatal(err)
	}
	if err := work(&what); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

// OnAll calls f for all of n at the same time.
func OnAll(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// Certificate makes a certificate that is its own authority, as PEM files.
func Certificate(t *testing.T) (cert, key string) {
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
	return write("worker.crt", "CERTIFICATE", der), write("worker.key", "PRIVATE KEY", secretDER)
}

// Journal remembers what was logged.
type Journal struct {
	mu    sync.Mutex
	lines []string
	added chan struct{}
}

// NewJournal makes an empty one.
func NewJournal() *Journal { return &Journal{added: make(chan struct{}, 1)} }

// Logf logs a line.
func (j *Journal) Logf(format string, args ...any) {
	j.mu.Lock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	j.mu.Unlock()
	select {
	case j.added <- struct{}{}:
	default:
	}
}

// Text is all lines.
func (j *Journal) Text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// Count is how often something was logged.
func (j *Journal) Count(part string) int { return strings.Count(j.Text(), part) }

// WaitFor waits until something has been logged.
func (j *Journal) WaitFor(t *testing.T, part string) {
	t.Helper()
	deadline := time.After(Limit)
	for !strings.Contains(j.Text(), part) {
		select {
		case <-j.added:
		case <-deadline:
			t.Fatalf("%q was not logged:\n%s", part, j.Text())
		}
	}
}
