// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package profile

import (
	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"
)

// message visits the fields of a message of protocol buffers: of those with a length text is what they hold, of others number.
func message(b []byte, visit func(field protowire.Number, number uint64, text []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return damaged(n)
		}
		b = b[n:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return damaged(n)
		}
		b = b[n:]
		if err := visit(field, number, text); err != nil {
			return err
		}
	}
	return nil
}

func damaged(n int) error {
	return errors.Wrap(protowire.ParseError(n), "pjrt: what the plugin wrote cannot be read")
}

// numbers are those of a repeated field: packed, or one of them.
func numbers(to []int64, number uint64, text []byte) ([]int64, error) {
	if text == nil {
		return append(to, int64(number)), nil
	}
	for len(text) > 0 {
		x, n := protowire.ConsumeVarint(text)
		if n < 0 {
			return nil, damaged(n)
		}
		to, text = append(to, int64(x)), text[n:]
	}
	return to, nil
}
