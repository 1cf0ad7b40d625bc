// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
)

// Peers is how devices of this worker work together with devices of the others, where that is not by the world: they exchange small values by key,
// which the first worker keeps, and end their waits when the job fails. It implements exec.Peers.
type Peers struct {
	*Job
	prefix string // of its keys
}

// Peers makes one. The n-th of a worker and the n-th of another have the same keys.
func (j *Job) Peers() *Peers {
	return &Peers{j, fmt.Sprint(j.joints.Add(1), " ")}
}

// Gather gives all workers the texts of all, by worker. what is a key that is used once.
func (p *Peers) Gather(what string, mine []byte) (all [][]byte, _ error) {
	key := func(w int) string { return fmt.Sprintf("%s of %d", what, w) }
	if err := p.Put(key(p.Worker), mine); err != nil {
		return nil, err
	}
	for w := range p.Devices {
		text, err := p.Get(context.Background(), key(w))
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// values are what the first worker keeps.
type values struct {
	mu      sync.Mutex
	of      map[string]string
	changed chan struct{} // closed with every change
}

func (v *values) put(key, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[string]string{}
	}
	v.of[key] = value
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// get waits for a key, for a moment.
func (v *values) get(key string, moment time.Duration) (value string, found bool) {
	for over := time.After(moment); ; {
		v.mu.Lock()
		value, found = v.of[key]
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		v.mu.Unlock()
		if found || moment == 0 {
			return value, found
		}
		select {
		case <-changed:
		case <-over:
			return "", false
		}
	}
}

const (
	// questionGet asks for a value: how long to wait, and the key, follow. questionPut gives one: the length of the key, the key and the value.
	questionGet = "get "
	questionPut = "put "

	// maxValue is how large a key with its value may be: what XLA measured for a large module is more than kilobytes.
	maxValue = 8 << 20

	// valueMoment is how long the first worker waits with its answer: shorter than what Query takes for a broken way.
	valueMoment = 200 * time.Millisecond
)

// answerValue answers what is asked about values. An answer begins with + or, if there is no such key, is -.
func (j *Job) answerValue(question string) (answer string, ours bool) {
	text, gets := strings.CutPrefix(question, questionGet)
	if !gets {
		if text, ours = strings.CutPrefix(question, questionPut); !ours {
			return "", false
		}
	}
	number, rest, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || !gets && n > len(rest) {
		return "", false
	}
	if !gets {
		j.values.put(rest[:n], rest[n:])
		return "+", true
	}
	if value, found := j.values.get(rest, time.Duration(n)); found {
		return "+" + value, true
	}
	return "-", true
}

// ask asks the first worker, which may be this one.
func (p *Peers) ask(ctx context.Context, question string) (value []byte, found bool, err error) {
	if err := p.member.Err(); err != nil {
		return nil, false, err
	}
	answer, ours := "", true
	if p.Worker == 0 {
		answer, ours = p.answerValue(question)
	} else if p.member.State(0).Left {
		return nil, false, errors.Errorf("epl: %s has left, and with it the values that it kept", p.Name(0))
	} else if answer, err = p.member.Query(ctx, 0, question); err != nil {
		if failed := p.member.Err(); failed != nil {
			err = failed // it says why there is no answer
		}
		return nil, false, err
	}
	switch {
	case ours && answer == "-":
		return nil, false, nil
	case !ours || !strings.HasPrefix(answer, "+"):
		return nil, false, errors.Errorf("epl: internal error: %s answers %.100q to %.100q", p.Name(0), answer, question)
	}
	return []byte(answer[1:]), true, nil
}

// Put sets the value of a key, for all workers.
func (p *Peers) Put(key string, value []byte) error {
	key = p.prefix + key
	if n := len(key) + len(value); n > maxValue {
		return errors.Errorf("epl: internal error: the value of %q has %d bytes, the limit is %d", key, n, maxValue)
	}
	ctx, over := p.Watch(fmt.Sprintf("put %q", key))
	defer over()
	_, _, err := p.ask(ctx, fmt.Sprintf("%s%d %s%s", questionPut, len(key), key, value))
	return err
}

// TryGet returns the value of a key, if there is one.
func (p *Peers) TryGet(key string) (value []byte, found bool, err error) {
	ctx, over := p.Watch(fmt.Sprintf("get %q", p.prefix+key))
	defer over()
	return p.ask(ctx, fmt.Sprint(questionGet, "0 ", p.prefix+key))
}

// Get waits for the value of a key until ctx is done, the job fails, or who has to put it does not in communication.timeout and is not busy. It does not wait
// when all others have finished.
func (p *Peers) Get(ctx context.Context, key string) ([]byte, error) {
	watch, over := p.Watch(fmt.Sprintf("get %q", p.prefix+key))
	defer over()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(watch, func() { cancel(context.Cause(watch)) })()
	for {
		value, found, err := p.ask(ctx, fmt.Sprint(questionGet, int64(valueMoment), " ", p.prefix+key))
		switch {
		case found:
			return value, nil
		case ctx.Err() != nil:
			return nil, errors.WithMessagef(context.Cause(ctx), "waiting for the key %q of another worker", key)
		case err != nil:
			return nil, err
		}
		if !slices.ContainsFunc(p.others(), func(w int) bool { return !p.member.State(w).Ended }) {
			return nil, errors.Errorf("epl: all other workers have finished, and the key %q is missing: all have to run the same programs", key)
		}
	}
}

// Err is why the job has failed; nil: it has not.
func (p *Peers) Err() error { return p.member.Err() }

// Watch returns a context for a wait in which other workers may hold up this one, until over is called. It ends when the job fails, and fails the job when
// communication.timeout has passed, unless who holds up this worker is busy; its cause says who. what completes "waits to …".
func (p *Peers) Watch(what string) (ctx context.Context, over func()) {
	ctx, end := p.patiently(p.life, p.others(), what, &moment{})
	stop := context.AfterFunc(ctx, func() {
		if stall := new(comm.StallError); errors.As(context.Cause(ctx), &stall) {
			p.Fail(stall)
		}
	})
	return ctx, func() {
		stop()
		end()
	}
}
