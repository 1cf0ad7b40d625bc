// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/easyparallel/epl/comm/internal/transport"
)

func FuzzHeadersAndFramesAreRefusedNotTrusted(f *testing.F) {
	f.Add(Header{1, 2, 3}.Append(nil))
	f.Add(Frame{Kind: FrameMessage, Number: 3, Call: transport.Told{Header: transport.Header{Op: transport.Send, Program: "train", Group: "[0 1]", Bytes: 3}, Pos: 1}}.Append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	huge := Frame{Kind: FrameOffer}.Append(nil)
	binary.LittleEndian.PutUint64(huge[8+8*6:], 1<<62)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(b); err == nil && !bytes.Equal(h.Append(nil), b[:HeaderSize]) {
			t.Errorf("%q was read as %+v", b, h)
		}
		r := bytes.NewReader(b)
		got, err := readFrame(r)
		if err != nil {
			return
		}
		if back := got.Append(nil); len(back) != len(b)-r.Len() {
			t.Errorf("%q was read as %+v, which is %q", b, got, back)
		}
		if len(got.Call.Program) > programBytes || strings.Contains(string(b), "HTTP") && len(b) < FrameSize {
			t.Errorf("%q was read as %+v", b, got)
		}
	})
}
