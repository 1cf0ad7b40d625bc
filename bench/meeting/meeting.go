// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package meeting lets the workers that a benchmark starts on this machine find each other.
package meeting

import (
	"fmt"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// Meeting is where the workers of one job meet.
type Meeting struct {
	workers int
	token   string
	server  *rendezvous.Server
}

// New opens a meeting for so many workers of this machine.
func New(workers int) (*Meeting, error) { return At("127.0.0.1", workers) }

// At opens a meeting at an address of this machine.
func At(host string, workers int) (*Meeting, error) {
	token := wire.NewToken()
	server, err := rendezvous.NewServer(host+":0", rendezvous.ServerOptions{Workers: workers, Security: wire.Security{Token: token}})
	if err != nil {
		return nil, err
	}
	return &Meeting{workers, token, server}, nil
}

// Address says where it is, as variables of the environment.
func (m *Meeting) Address() []string {
	return []string{rendezvous.EnvURL + "=tcp://" + m.server.Addr().String(), rendezvous.EnvToken + "=" + m.token}
}

// Environment is the address, and which worker of the job one is.
func (m *Meeting) Environment(worker, devices int) []string {
	return append(m.Address(), fmt.Sprintf("%s=%d", cluster.EnvNumWorkers, m.workers), fmt.Sprintf("%s=%d", cluster.EnvWorkerIndex, worker),
		fmt.Sprintf("%s=%d", cluster.EnvDevicesPerWorker, devices))
}

// Close ends it: workers that have not left by then end, too.
func (m *Meeting) Close() { _ = m.server.Close() }
