// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package prometheus shows the metrics of a training to Prometheus.
package prometheus

import (
	"net"
	"net/http"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/easyparallel/epl/metrics"
)

// Sink serves the last values at /metrics of an address, as soon as there are some:
//
//	epl_metric{name="Loss"} 0.25
//	epl_step 120
//
// An address without a host, such as ":9464", is of this machine only; write "0.0.0.0:9464" to let others read it. Nobody is asked for a password.
func Sink(address string) metrics.Sink { return &sink{address: address} }

// Handler is a sink for a program that has a server of its own, and what that is to serve.
//
//	sink, handler := prometheus.Handler()
//	http.Handle("/metrics", handler)
func Handler() (metrics.Sink, http.Handler) {
	s := &sink{}
	return s, s.register()
}

type sink struct {
	address string
	values  *prometheus.GaugeVec
	step    prometheus.Gauge
	server  *http.Server
}

// register makes the gauges, and what serves them.
func (s *sink) register() http.Handler {
	s.values = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "epl_metric", Help: "What a training tells of itself, by name."}, []string{"name"})
	s.step = prometheus.NewGauge(prometheus.GaugeOpts{Name: "epl_step", Help: "The step of the values."})
	all := prometheus.NewRegistry()
	all.MustRegister(s.values, s.step)
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

// Write implements [metrics.Sink].
func (s *sink) Write(r metrics.Record) error {
	if s.values == nil {
		if err := s.serve(); err != nil {
			return err
		}
	}
	s.step.Set(float64(r.Step))
	for name, x := range r.Values {
		s.values.WithLabelValues(name).Set(x)
	}
	return nil
}

func (s *sink) serve() error {
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return errors.Errorf("epl: metrics for Prometheus: %q is no address: %v; write one such as :9464", s.address, err)
	}
	if host == "" {
		host = "localhost"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return errors.Wrap(err, "epl: metrics for Prometheus")
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.register())
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }() // until Close
	return nil
}

// Close implements [metrics.Sink].
func (s *sink) Close() error {
	if s.server == nil {
		return nil
	}
	return errors.Wrap(s.server.Close(), "epl: metrics for Prometheus")
}
