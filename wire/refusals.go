// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"io"
	"net"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
)

const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
	// maxRefusals bounds what is remembered of strangers, who may come from many addresses.
	maxRefusals = 200
)

// refusals reports strangers, each host once for each reason, and counts the rest.
type refusals struct {
	logf  func(format string, args ...any)
	mu    sync.Mutex
	count map[stranger]int
}

type stranger struct{ host, reason string }

func (r *refusals) add(host, reason string) {
	key := stranger{host, reason}
	r.mu.Lock()
	if r.count == nil {
		r.count = map[stranger]int{}
	}
	if _, known := r.count[key]; !known && len(r.count) >= maxRefusals {
		key = stranger{"other hosts", "for all kinds of reasons"}
	}
	r.count[key]++
	first := r.count[key] == 1
	r.mu.Unlock()
	if first && r.logf != nil {
		r.logf("epl: refused a connection from %s: %s; the job goes on, and more of these are only counted", key.host, key.reason)
	}
}

// summarize reports in one line what was only counted.
func (r *refusals) summarize() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var more []string
	total := 0
	for key, n := range r.count {
		if n > 1 {
			total += n - 1
			more = append(more, fmt.Sprintf("%d from %s (%s)", n-1, key.host, key.reason))
		}
	}
	r.count = nil
	if total > 0 && r.logf != nil {
		sort.Strings(more)
		r.logf("epl: refused %d more connections: %s", total, strings.Join(more, ", "))
	}
}

// reason sorts errors of a handshake into few kinds, so that each is reported once.
func reason(err error) string {
	var timeout net.Error
	var token *TokenError
	var version *VersionError
	var frames *protocolVersionError
	var protocol *ProtocolError
	var damage *DamageError
	var tls *TLSError
	switch {
	case errors.Is(err, errEvicted):
		return "it had not proved who it is, and there were too many like it"
	case errors.As(err, &token):
		return "it has another token"
	case errors.As(err, &version):
		return fmt.Sprintf("it is EPL %.40q, this is EPL %s", version.Theirs, version.Ours)
	case errors.As(err, &frames):
		return fmt.Sprintf("it speaks version %d of the protocol, this is version %d", frames.other, protocolVersion)
	case errors.As(err, &protocol):
		return "it does not speak EPL's protocol"
	case errors.As(err, &damage):
		return "what it said arrived damaged"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it said nothing for too long"
	case errors.Is(err, io.EOF):
		return "it said nothing and went away"
	case errors.As(err, &tls):
		return "TLS failed"
	}
	return "it went away in the middle of the handshake"
}
