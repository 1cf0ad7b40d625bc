// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/easyparallel/epl/metrics"
)

func read(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheLastValuesAreServed(t *testing.T) {
	s, handler := Handler()
	server := httptest.NewServer(handler)
	defer server.Close()
	for step := range int64(3) {
		if err := s.Write(metrics.Record{Step: step, Values: map[string]float64{"Batch Loss": float64(step) / 4}}); err != nil {
			t.Fatal(err)
		}
	}
	if text := read(t, server.URL); !strings.Contains(text, "\nepl_metric{name=\"Batch Loss\"} 0.5\n") || !strings.Contains(text, "\nepl_step 2\n") {
		t.Error(text)
	}
}

func TestAnAddressIsServedUntilClose(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := Sink(":" + port)
	if err := s.Write(metrics.Record{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	_ = l.Close()
	s = Sink(":" + port)
	if err := s.Write(metrics.Record{Step: 5}); err != nil {
		t.Fatal(err)
	}
	if text := read(t, "http://localhost:"+port+"/metrics"); !strings.Contains(text, "\nepl_step 5\n") {
		t.Error(text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get("http://localhost:" + port + "/metrics"); err == nil {
		t.Error("it is served after Close")
	}
	if err := Sink("9464").Write(metrics.Record{}); err == nil || !strings.Contains(err.Error(), "such as :9464") {
		t.Error(err)
	}
}
