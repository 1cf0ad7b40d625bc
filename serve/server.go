// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/checked"
	"github.com/easyparallel/epl/wire"
)

// chunk is how much is written at once: what must get through before a reader counts as stopped.
const chunk = 1 << 20

// Server hands out data of this worker to the others. Its methods may be called at the same time.
type Server struct {
	patience time.Duration
	ctx      context.Context // ends with Close
	cancel   func()
	group    sync.WaitGroup

	mu    sync.Mutex
	names map[string]known
	more  chan struct{} // closed by the next Offer; nil: nobody waits for it
}

// known is the newest version of a name. It stays when the data are withdrawn, so that those who come late are not left
// waiting.
type known struct {
	version uint64
	offer   *offer // nil: withdrawn
}

// offer is data that can be read.
type offer struct {
	read    func() (data []byte, release func(), err error)
	readers sync.WaitGroup
}

// NewServer makes a server that offers nothing yet. A reader that has not taken anything for as long as patience, though
// there is something for it, is given up.
func NewServer(patience time.Duration) *Server {
	s := &Server{patience: patience, names: map[string]known{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Offer makes data readable under a name, until the returned function is called or a newer version is offered. Versions
// of a name only grow: one that is older than the newest so far is never read.
//
// read is called for every request, from any goroutine, and returns the bytes, which stay as they are until release is
// called. withdraw waits for that: when it returns, nobody reads the data any more, and nobody will. It takes as long as
// a reader needs, or stands still and is given up. A newer version does not withdraw an older one in this sense: its
// data are still read by those who have begun. Withdrawing twice is harmless.
func (s *Server) Offer(name string, version uint64, read func() (data []byte, release func(), err error)) (withdraw func()) {
	o := &offer{read: read}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.names[name]; !ok || version >= k.version {
		s.names[name] = known{version, o}
		if s.more != nil {
			close(s.more)
			s.more = nil
		}
	}
	return func() {
		s.mu.Lock()
		if k := s.names[name]; k.offer == o {
			s.names[name] = known{version: version}
		}
		s.mu.Unlock()
		o.readers.Wait()
	}
}

// Handle answers the requests that come on a connection, until it ends. It returns at once; the server closes the
// connection.
func (s *Server) Handle(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		conn.Close()
		return
	}
	s.group.Go(func() { s.answerAll(conn) })
}

// Close ends all connections. When it returns nobody reads anything any more.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.group.Wait()
}

// answerAll answers one request after the other. Meanwhile the next is read, so that a reader that goes is noticed.
func (s *Server) answerAll(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { conn.Close() })
	requests := make(chan wanted, 1)
	damaged := make(chan error, 1)
	s.group.Go(func() {
		defer cancel()
		for {
			kind, payload, err := wire.ReadFrame(conn, maxRequest)
			if damage := new(checked.DamageError); errors.As(err, &damage) {
				damaged <- err
				<-ctx.Done()
			}
			if err != nil {
				return
			}
			w, err := decode(kind, payload)
			if err != nil {
				return
			}
			select {
			case requests <- w:
			default: // it has not waited for its answers
				return
			}
		}
	})
	for {
		select {
		case w := <-requests:
			if s.answer(ctx, conn, w) != nil {
				return
			}
		case err := <-damaged: // the reader gets to know why
			_ = s.refuse(conn, "the request cannot be answered: "+err.Error())
			return
		case <-ctx.Done():
			return
		}
	}
}

// answer does what a request asks for. An error means that the connection is of no more use.
func (s *Server) answer(ctx context.Context, conn net.Conn, w wanted) error {
	o, wrong, err := s.await(ctx, conn, w)
	if err != nil {
		return err
	}
	if wrong != "" {
		return s.refuse(conn, wrong)
	}
	defer o.readers.Done()
	data, release, err := o.read()
	if err != nil {
		return s.refuse(conn, strings.TrimPrefix(err.Error(), "epl: "))
	}
	defer release()
	if uint64(len(data)) != w.size {
		return s.refuse(conn, fmt.Sprintf("internal error: %q has %d bytes there, and %d were asked for", w.name, len(data), w.size))
	}
	if err := s.send(conn, here, nil); err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), chunk)
		conn.SetWriteDeadline(time.Now().Add(s.patience))
		if _, err := conn.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// await returns what is asked for, which has one reader more, or says why it will not be there.
func (s *Server) await(ctx context.Context, conn net.Conn, w wanted) (o *offer, wrong string, err error) {
	for told := false; ; {
		s.mu.Lock()
		k, ok := s.names[w.name]
		switch {
		case ok && w.version < k.version:
			wrong = fmt.Sprintf("version %d of %q is not there any more: version %d has taken its place; read it before the next step",
				w.version, w.name, k.version)
		case ok && w.version == k.version && k.offer == nil:
			wrong = fmt.Sprintf("version %d of %q is not there any more: it was withdrawn, and version %d is the newest; read it before the next step",
				w.version, w.name, k.version)
		case ok && w.version == k.version:
			o = k.offer
			o.readers.Add(1)
		case s.more == nil:
			s.more = make(chan struct{})
		}
		more := s.more
		s.mu.Unlock()
		if o != nil || wrong != "" {
			return o, wrong, nil
		}
		if !told {
			told = true
			var newest []byte
			if ok {
				newest = binary.BigEndian.AppendUint64(nil, k.version)
			}
			if err := s.send(conn, notYet, newest); err != nil {
				return nil, "", err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
}

// refuse sends as much of a reason as may travel.
func (s *Server) refuse(conn net.Conn, why string) error {
	return s.send(conn, refused, []byte(why[:min(len(why), maxReply)]))
}

func (s *Server) send(conn net.Conn, kind byte, payload []byte) error {
	conn.SetWriteDeadline(time.Now().Add(s.patience))
	return wire.WriteFrame(conn, kind, payload)
}
