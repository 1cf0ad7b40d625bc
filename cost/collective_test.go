// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"testing"
	"time"
)

func ranks(n int) (all []int) {
	for r := range n {
		all = append(all, r)
	}
	return all
}

func TestCollectivesOfOneHost(t *testing.T) {
	c := Uniform(1, 4, Default, Link{Bandwidth: 1e6}, Link{})
	for kind, want := range map[Collective]time.Duration{
		AllReduce: 1500 * time.Millisecond, AllGather: 750 * time.Millisecond, ReduceScatter: 750 * time.Millisecond,
		AllToAll: 750 * time.Millisecond, Broadcast: time.Second, Send: time.Second,
	} {
		if got := c.Collective(kind, 1e6, ranks(4)); got != want {
			t.Errorf("collective %d takes %v, not %v", kind, got, want)
		}
	}
	for _, got := range []time.Duration{c.Collective(AllReduce, 1e6, ranks(1)), c.Collective(AllReduce, 0, ranks(4))} {
		if got != 0 {
			t.Errorf("nothing takes %v", got)
		}
	}
}

func TestDevicesOfAHostShareItsNetworkCard(t *testing.T) {
	fast, slow := Link{Bandwidth: 1e15}, Link{Bandwidth: 1e6, Shared: true}
	c := Uniform(2, 4, Default, fast, slow)
	// Between two hosts each byte goes once in each direction, through a card that four devices share.
	if got := c.Collective(AllReduce, 1e6, ranks(8)).Round(time.Millisecond); got != time.Second {
		t.Errorf("an all-reduce of 1 MB takes %v", got)
	}
	c.Between.Shared = false
	if got := c.Collective(AllReduce, 1e6, ranks(8)).Round(time.Millisecond); got != 250*time.Millisecond {
		t.Errorf("with a card for each device it takes %v", got)
	}
	if got := c.Collective(AllReduce, 1e6, []int{0, 4}).Round(time.Millisecond); got != time.Second {
		t.Errorf("between one device of each host it takes %v", got)
	}
}

func TestDevicesOfWorkersOfHosts(t *testing.T) {
	c := Uniform(2, 4, Default, Link{Bandwidth: 1e6}, Link{Bandwidth: 1e5, Shared: true})
	c.Within = Link{Bandwidth: 1e7}
	for i := range c.Devices {
		c.Devices[i].Worker = i / 2
	}
	// 1 MB in a worker at 10 MB/s, then half of it between the workers at 1 MB/s, and all of it through the card at 0.1 MB/s.
	if got, want := c.Collective(AllReduce, 1e6, ranks(8)), 100*time.Millisecond+500*time.Millisecond+10*time.Second; got.Round(time.Millisecond) != want {
		t.Errorf("%v, not %v", got, want)
	}
	// Each sends its card 4 of 8 parts, as the three others do.
	if got, want := c.Collective(AllToAll, 1e6, ranks(8)), 20*time.Second; got.Round(time.Millisecond) != want {
		t.Errorf("an all-to-all takes %v, not %v", got, want)
	}
	if got, want := c.Collective(AllReduce, 1e6, []int{0, 1}), 100*time.Millisecond; got.Round(time.Millisecond) != want {
		t.Errorf("inside a worker it takes %v, not %v", got, want)
	}
}

func TestCollectivesOfBytesAndOfNone(t *testing.T) {
	link := Link{Latency: time.Millisecond, Bandwidth: 1e6}
	c := Uniform(2, 2, Default, link, DefaultLink)
	if latency, rest := c.Apart(AllReduce, 1e6, ranks(2)); latency.Round(time.Microsecond) != 2*time.Millisecond || rest.Round(time.Millisecond) != time.Second {
		t.Errorf("an all-reduce takes %v and %v", latency, rest)
	}
	if !c.Connected(ranks(2)) || c.Connected(ranks(3)) {
		t.Error("it is known what connects devices of a host, and not what connects hosts")
	}
}

func TestSmallValuesTakeATree(t *testing.T) {
	c := Uniform(1, 16, Default, Link{Latency: time.Second, Bandwidth: 1e15}, Link{})
	if got := c.Collective(AllReduce, 4, ranks(16)).Round(time.Millisecond); got != 8*time.Second {
		t.Errorf("up and down a tree of 16 takes %v, not 8 rounds", got)
	}
}
