// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

func TestAJobCanBeEncrypted(t *testing.T) {
	jobtest.NoLeak(t)
	cert, key := jobtest.Certificate(t)
	j, found, err := FromEnvironment(func(name string) (string, bool) {
		value, ok := map[string]string{
			EnvURL: "tcp://127.0.0.1:1", EnvToken: testSecurity.Token, EnvTLSCert: cert, EnvTLSKey: key, EnvTLSCA: cert,
		}[name]
		return value, ok
	})
	if err != nil || !found {
		t.Fatal(found, err)
	}
	s, err := NewServer("127.0.0.1:0", ServerOptions{Workers: 2, Security: j.Security})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plain := jobAt(s, 1, 2)
	plain.Timeout = time.Second
	_, err = Join(jobtest.Within(t), plain)
	jobtest.WantError(t, err, "worker 1 found no rendezvous")
	jobs := []Options{jobAt(s, 0, 2), jobAt(s, 1, 2)}
	jobs[0].Security, jobs[1].Security = j.Security, j.Security
	members, errs := joinAll(jobtest.Within(t), jobs)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range onAll(members, func(m *Member) error {
		conn, err := m.Connect(jobtest.Within(t), 1-m.Index(), "data")
		if err != nil {
			return err
		}
		if _, encrypted := conn.(*tls.Conn); !encrypted {
			t.Errorf("the connection is a %T", conn)
		}
		return conn.Close()
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	leaveAll(t, members)
}
