package comm

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func FuzzHeadersAndFramesAreRefusedNotTrusted(f *testing.F) {
	f.Add(tcpHeader{1, 2, 3}.append(nil))
	f.Add(frame{kind: frameMessage, number: 3, call: told{Header: Header{Op: Send, Program: "train", Group: "[0 1]", Bytes: 3}, Pos: 1}}.append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	huge := frame{kind: frameOffer}.append(nil)
	binary.LittleEndian.PutUint64(huge[8+8*6:], 1<<62)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(b); err == nil && !bytes.Equal(h.append(nil), b[:headerSize]) {
			t.Errorf("%q was read as %+v", b, h)
		}
		r := bytes.NewReader(b)
		got, err := readFrame(r)
		if err != nil {
			return
		}
		if back := got.append(nil); len(back) != len(b)-r.Len() {
			t.Errorf("%q was read as %+v, which is %q", b, got, back)
		}
		if len(got.call.Program) > programBytes || strings.Contains(string(b), "HTTP") && len(b) < frameSize {
			t.Errorf("%q was read as %+v", b, got)
		}
	})
}
