// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"strconv"
	"time"
)

// connectTime is how long a connection may take to be made.
const connectTime = 5 * time.Second

func (s *System) loopback() Finding {
	const fix = "sudo ip link set lo up"
	l, err := s.Listen("127.0.0.1:0")
	if err != nil {
		return problem(fix, "Nothing can listen at 127.0.0.1: %v.", err)
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp", l.Addr().String(), connectTime)
	if err != nil {
		return problem(fix, "127.0.0.1 cannot be reached, over which workers of one machine meet: %v.", err)
	}
	_ = c.Close()
	return ok("Workers of this machine reach each other at 127.0.0.1.")
}

func (s *System) port() Finding {
	l, err := s.Listen(net.JoinHostPort("", strconv.Itoa(s.Port)))
	if err != nil {
		return warning("epl-launch --port with another number, on all machines", "Port %d, where jobs on several machines meet, cannot be used here: %v.", s.Port, err)
	}
	_ = l.Close()
	return ok("Port %d, where jobs on several machines meet, is free.", s.Port)
}

func (s *System) clock() Finding {
	switch synchronised, known := s.Synced(); {
	case !known:
		return ok("The system does not say whether its clock is synchronised; EPL's waits do not depend on it.")
	case !synchronised:
		return warning("sudo timedatectl set-ntp true", "The clock is not synchronised by NTP: times in logs differ between machines, and TLS may refuse certificates.")
	}
	return ok("The clock is synchronised.")
}
