// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/internal/checked"
	"github.com/easyparallel/epl/serve"
)

// Offer lets the other workers read data of this one, as [serve.Server.Offer] does.
func (j *Job) Offer(name string, version uint64, read func() (data []byte, release func(), err error)) (withdraw func()) {
	j.offered.Store(true)
	return j.server.Offer(name, version, read)
}

// Sharing notes that workers read each other's variables.
func (j *Job) Sharing() { j.offered.Store(true) }

// Reading notes that a variable is copied to the host, which others may have to wait for.
func (j *Job) Reading() { j.activity.reads() }

// Fetch copies what another worker offers into dst, as [serve.Fetch] does. It waits as long as communication.timeout
// for the other worker to offer it, longer while that one is busy, and as long as data come.
func (j *Job) Fetch(worker int, name string, version uint64, dst []byte) error {
	if worker < 0 || worker >= len(j.Devices) || worker == j.Worker {
		return errors.Errorf("epl: internal error: worker %d cannot read version %d of %q of worker %d, the job has %d",
			j.Worker, version, name, worker, len(j.Devices))
	}
	var moved moment
	ctx, cancel := j.patiently(context.Background(), []int{worker}, fmt.Sprintf("read %q of worker %d", name, worker), &moved)
	defer cancel()
	err := j.fetch(ctx, &moved, worker, name, version, dst)
	if err == nil {
		return nil
	}
	if stall := new(comm.StallError); errors.As(context.Cause(ctx), &stall) {
		if stall.Alive {
			j.Trouble(stall) // the job can go on, if the program does
		} else {
			j.Fail(stall)
		}
	}
	return errors.Errorf("epl: worker %d cannot read %q of %s: %s", j.Worker, name, j.member.Workers()[worker], inner(err))
}

func (j *Job) fetch(ctx context.Context, moved *moment, worker int, name string, version uint64, dst []byte) error {
	line, err := j.line(ctx, worker)
	if err != nil {
		return j.because(ctx, err)
	}
	go func() {
		select {
		case <-j.member.Done():
			line.Close()
		case <-ctx.Done():
		}
	}()
	line.moved.Store(moved)
	err = serve.Fetch(ctx, line.Conn, name, version, dst)
	if _, refused := err.(*serve.RefusedError); err == nil || refused {
		j.lines.keep(worker, line)
		return err
	}
	line.Close()
	return j.because(ctx, err)
}

// because returns why a read had to end. The rendezvous may know better why a connection broke: it gets a moment to say so.
// That what came was damaged nobody else knows.
func (j *Job) because(ctx context.Context, err error) error {
	if damage := new(checked.DamageError); errors.As(err, &damage) {
		return errors.Errorf("%s; a network card, a switch or memory between the two changes bytes: see the error counters of both machines", inner(err))
	}
	select {
	case <-j.member.Done():
		return j.member.Err()
	case <-ctx.Done():
		return err
	case <-time.After(time.Second):
		return errors.Errorf("%s; see what happened to that worker", inner(err))
	}
}

// inner returns an error's text to stand inside another sentence.
func inner(err error) string { return strings.TrimPrefix(err.Error(), "epl: ") }

// questionLine asks a worker to make a connection and to answer what is asked on it. The asking worker and a number follow.
const questionLine = "line "

// line returns a connection on which another worker answers: one that was opened at the start or that an earlier fetch has
// left, or a new one.
func (j *Job) line(ctx context.Context, worker int) (*line, error) {
	if line := j.lines.take(worker); line != nil {
		if !j.member.State(worker).Left {
			return line, nil
		}
		line.Close()
	}
	return j.openLine(ctx, worker)
}

// openLine asks another worker for a connection.
func (j *Job) openLine(ctx context.Context, worker int) (*line, error) {
	question := fmt.Sprintf(questionLine+"%d %d", j.Worker, j.lines.count.Add(1))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		answer, err := j.member.Query(ctx, worker, question)
		switch {
		case err != nil:
			cancel(errors.New(inner(err)))
		case answer != "":
			cancel(errors.Errorf("the other worker says: %s", answer))
		}
	}()
	conn, err := j.member.Connect(ctx, worker, question)
	if err != nil {
		return nil, err
	}
	return j.newLine(conn), nil
}

// answer makes the connection that another worker asks for. What else is asked is not ours.
func (j *Job) answer(question string) (answer string, ours bool) {
	var worker, number int
	if n, _ := fmt.Sscanf(question, questionLine+"%d %d", &worker, &number); n != 2 {
		return "", false
	}
	conn, err := j.member.Connect(context.Background(), worker, question)
	if err != nil {
		return inner(err), true
	}
	if j.checks {
		conn = checked.NewConn(conn)
	}
	j.server.Handle(conn)
	return "", true
}
