// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"testing"

	"github.com/easyparallel/epl/internal/jobtest"
)

func TestWorkersMeetOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := jobtest.Certificate(t)
	status, stdout, stderr := test(t, Options{Workers: 2, TLSCert: cert, TLSKey: key, TLSCA: cert, Command: []string{"join"}})
	if want := "[0] worker 0 of 2 joined\n[1] worker 1 of 2 joined"; status != 0 || sorted(stdout) != want {
		t.Errorf("status %d, got:\n%s\n%s", status, stdout, stderr)
	}
}
