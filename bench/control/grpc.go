// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/easyparallel/epl/wire"
)

// part is what a member sends.
type part struct{ Subject, Hash string }

// outcome is what it gets.
type outcome struct{ Wrong string }

// codec writes messages as JSON.
type codec struct{}

func (codec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (codec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (codec) Name() string                       { return "json" }

// token is that of a job. It travels with each call.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"token": string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t token) RequireTransportSecurity() bool { return false }

// barrier is what members of a job on gRPC wait at.
type barrier struct {
	workers int
	token   token
	mu      sync.Mutex
	parts   []part
	over    chan outcome // what all who wait get
	called  func()       // is told of each call that has the token
}

// wait returns when all have come.
func (b *barrier) wait(ctx context.Context, p part) (outcome, error) {
	if m, _ := metadata.FromIncomingContext(ctx); len(m["token"]) != 1 || m["token"][0] != string(b.token) {
		return outcome{}, errors.New("another token")
	}
	b.called()
	b.mu.Lock()
	over := b.over
	if b.parts = append(b.parts, p); len(b.parts) == b.workers {
		var o outcome
		for _, other := range b.parts {
			if other != b.parts[0] {
				o.Wrong = "they differ"
			}
		}
		for range b.workers {
			over <- o
		}
		b.parts, b.over = nil, make(chan outcome, b.workers)
	}
	b.mu.Unlock()
	select {
	case o := <-over:
		return o, nil
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// service is what a job on gRPC needs at least: a stream that lives as long as a member, and a call to agree.
var service = &grpc.ServiceDesc{ServiceName: "control", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Agree", Handler: func(b any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var p part
		if err := decode(&p); err != nil {
			return nil, err
		}
		return b.(*barrier).wait(ctx, p)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Join", ServerStreams: true, ClientStreams: true, Handler: func(b any, stream grpc.ServerStream) error {
		var p part
		if err := stream.RecvMsg(&p); err != nil {
			return err
		}
		o, err := b.(*barrier).wait(stream.Context(), p)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&o); err != nil {
			return err
		}
		for stream.RecvMsg(&p) == nil { // signs of life
			if err := stream.SendMsg(&o); err != nil {
				return err
			}
		}
		return nil
	}}},
}

// grpcServer serves a job at an address of this machine.
func grpcServer(workers int, called func()) (b *barrier, addr string, stop func(), err error) {
	b = &barrier{workers: workers, token: token(wire.NewToken()), over: make(chan outcome, workers), called: called}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	s := grpc.NewServer(grpc.ForceServerCodec(codec{}), grpc.ConnectionTimeout(5*time.Second))
	s.RegisterService(service, b)
	go func() { _ = s.Serve(l) }()
	return b, l.Addr().String(), s.Stop, nil
}

// grpcClient makes a member, which has not joined.
func grpcClient(addr string, t token, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(t),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})), grpc.WithDisableServiceConfig())...)
}

// grpcJob lets members meet by gRPC.
func grpcJob(workers int) (*job, error) {
	b, addr, stop, err := grpcServer(workers, func() {})
	if err != nil {
		return nil, err
	}
	clients := make([]*grpc.ClientConn, workers)
	ended := make(chan struct{})
	err = onAll(workers, func(i int) error {
		if clients[i], err = grpcClient(addr, b.token); err != nil {
			return err
		}
		stream, err := clients[i].NewStream(context.Background(), &service.Streams[0], "/control/Join")
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&part{}); err != nil {
			return err
		}
		if err := stream.RecvMsg(&outcome{}); err != nil {
			return err
		}
		go beat(stream, ended)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &job{
		agree: func(i int, subject, text string) error {
			hash := sha256.Sum256([]byte(text))
			return clients[i].Invoke(context.Background(), "/control/Agree", &part{subject, hex.EncodeToString(hash[:])}, &outcome{})
		},
		end: func() {
			close(ended)
			for _, c := range clients {
				_ = c.Close()
			}
			stop()
		},
	}, nil
}

// beat gives signs of life, and takes those of the server.
func beat(stream grpc.ClientStream, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Second):
		}
		if stream.SendMsg(&part{}) != nil || stream.RecvMsg(&outcome{}) != nil {
			return
		}
	}
}
