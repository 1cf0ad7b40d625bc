// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/wire"
)

// callTime is how long a launcher tries to reach the first one, which may have to be started again.
const callTime = 10 * time.Minute

// answer runs workers of this machine for the launcher of the first one, which it calls, until that says that the job is over. If that
// launcher ends, so do the workers, and it is called again: whoever starts it anew goes on with the job.
func (e *elastic) answer(ctx context.Context, address string, rank int) (status int, err error) {
	security, err := e.security()
	if err != nil {
		return badInput, err
	}
	signals, interrupted := e.interrupts(ctx)
	said := false
	for since := time.Now(); ; {
		limited, over := context.WithTimeout(interrupted, 5*time.Second)
		conn, err := wire.Dial(limited, "tcp", address, fmt.Sprintf(callPurpose, rank), security, version.Version)
		over()
		if err == nil {
			if !said {
				e.display.note("this is machine %d: its workers are looked after, and their output is shown, by epl-launch at %s", rank, address)
			}
			said = true
			if status, done := e.serve(conn, signals); done {
				return status, nil
			}
			e.display.note("epl-launch at %s has gone, and the workers here with it; it is called again", address)
			since = time.Now()
		}
		var token *wire.TokenError
		switch {
		case interrupted.Err() != nil:
			return 128 + int(syscall.SIGTERM), nil
		case errors.As(err, &token):
			return badInput, err
		case time.Since(since) > callTime:
			return 1, errors.Errorf("epl: epl-launch of the first machine, at %s, cannot be reached: %v; it takes part in an elastic job, too", address, err)
		}
		select {
		case <-interrupted.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// interrupts hands signals on, and a context that ends with the first.
func (e *elastic) interrupts(ctx context.Context) (<-chan os.Signal, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	go func() {
		defer cancel()
		for {
			select {
			case s := <-e.Signals:
				if s == syscall.SIGUSR1 {
					continue // the first launcher passes it on
				}
				cancel()
				signals <- s
			case <-ctx.Done():
				signals <- syscall.SIGTERM
			}
			return
		}
	}()
	return signals, ctx
}

// serve does what the first launcher says on a connection. done: the job is over.
func (e *elastic) serve(conn *wire.Conn, signals <-chan os.Signal) (status int, done bool) {
	defer conn.Close()
	conn.GiveUpAfter(retryTime)
	say := reporter(conn)
	stopped, over := make(chan os.Signal, 1), make(chan struct{})
	defer close(over) // a signal is for the connection that there is then
	go func() {
		select {
		case s := <-signals:
			stopped <- s
			time.AfterFunc(e.grace(), func() { _ = conn.Close() })
		case <-over:
		}
	}()
	for in := json.NewDecoder(conn); ; {
		var s summons
		if in.Decode(&s) != nil {
			return 0, false
		}
		if s.Over != nil {
			return *s.Over, true
		}
		if s.Spec == nil {
			continue
		}
		mine := *s.Spec // which workers, but not what they run
		mine.Command, mine.Directory, mine.Token, mine.TLS, mine.NoPin = e.job.Command, e.job.Directory, e.job.Token, e.job.TLS, e.NoPin
		mine.Environ, mine.Memory, mine.Grace = nil, e.job.Memory, e.grace()
		if e.allocated {
			mine.LocalWorkers, mine.LocalIndex, mine.ShareCores = e.job.LocalWorkers, e.job.LocalIndex, e.job.ShareCores
		}
		if serve(mine, e.Environ, e.Self, in, say, stopped) != 0 {
			say(report{End: true}) // it could not be prepared
		}
	}
}
