// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import "net"

// Loopback returns the address by which the processes of this machine reach each other: 127.0.0.1, or ::1 on a machine that
// has IPv6 only.
func Loopback() string {
	addrs, _ := net.InterfaceAddrs()
	six := false
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsLoopback() {
			if n.IP.To4() != nil {
				return "127.0.0.1"
			}
			six = true
		}
	}
	if six {
		return "::1"
	}
	return "127.0.0.1"
}

// family returns the network to listen at. On a machine without IPv4 the net package takes all addresses for those of IPv4, and
// localhost for 127.0.0.1, unless it is told.
func family(network string) string {
	if network == "tcp" && Loopback() == "::1" {
		return "tcp6"
	}
	return network
}
