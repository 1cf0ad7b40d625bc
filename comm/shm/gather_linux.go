// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

func (a *area) allGather(k *transport.Call, r *transport.Round) error {
	c := r.First()
	size, counts := c.Out.Size, c.OutCounts
	own := func(from, to int) {
		a.pieces(a.me, counts, from, to, func(pos, off, n, _ int) {
			transport.MoveToAll(a.outs(r, a.offsets[pos]+off), a.callAt(r, pos).In.At(off), n*size)
		})
	}
	per, mine := perSlot(size, 1), a.total(a.me, counts)
	small := c.Out.Len*size <= smallBytes
	if !small {
		done, err := a.direct(k, r, a.most(counts)*size >= lentBytes, func() error {
			own(0, mine)
			return a.others(func(m int) error {
				a.pieces(m, counts, 0, a.total(m, counts), func(pos, off, n, _ int) {
					transport.MoveToAll(a.outs(r, a.offsets[pos]+off), unsafe.Add(a.mapped[pos], off*size), n*size)
				})
				return nil
			})
		}, func() error {
			p := parcels{a, r, func(list []stretch, from, to int) []stretch {
				for _, dst := range a.team.Members[to].Positions {
					for _, src := range a.team.Members[from].Positions {
						list = append(list, stretch{src, 0, dst, a.offsets[src] * size, counts[src] * size})
					}
				}
				return list
			}}
			if a.most(counts)*size < helpBytes {
				own(0, mine)
				return p.takeAlone()
			}
			per := max(1, chunkOf(mine*size)/size)
			return p.handOut(func(i int) bool { own(i*per, (i+1)*per); return (i+1)*per < mine })
		})
		if done || err != nil {
			return err
		}
	}
	return a.steps(k, r, small, stepsFor(a.most(counts), per), func(i int, slot unsafe.Pointer) {
		a.pieces(a.me, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
			transport.Move(unsafe.Add(slot, at*size), a.callAt(r, pos).In.At(off), n*size)
		})
	}, func(i int, step uint64) error {
		if i == 0 {
			own(0, mine)
		}
		return a.others(func(m int) error {
			if err := a.await(k, m, filled, step+1); err != nil {
				return err
			}
			a.pieces(m, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
				transport.MoveToAll(a.outs(r, a.offsets[pos]+off), unsafe.Add(a.slots[step&1][m], at*size), n*size)
			})
			return nil
		})
	})
}

func (a *area) broadcast(k *transport.Call, r *transport.Round) error {
	c := r.First()
	root, bytes := a.team.MemberOf[c.PeerPos], int(c.Bytes)
	own := func(from, n int) {
		transport.MoveToAll(a.outs(r, from/c.In.Size), unsafe.Add(a.callAt(r, c.PeerPos).In.Ptr, from), n)
	}
	small := bytes <= oneSlotBytes
	if !small {
		done, err := a.direct(k, r, true, func() error {
			if a.me == root {
				own(0, bytes)
			} else {
				transport.MoveToAll(a.outs(r, 0), a.mapped[c.PeerPos], bytes)
			}
			return nil
		}, func() error {
			if a.me == root {
				own(0, bytes)
			}
			p := parcels{a, r, func(list []stretch, from, to int) []stretch {
				if from == root {
					for _, dst := range a.team.Members[to].Positions {
						list = append(list, stretch{c.PeerPos, 0, dst, 0, bytes})
					}
				}
				return list
			}}
			if bytes < lentBytes {
				return p.takeAlone()
			}
			return p.carry()
		})
		if done || err != nil {
			return err
		}
	}
	const per = slotBytes
	return a.steps(k, r, small, stepsFor(bytes, per), func(i int, slot unsafe.Pointer) {
		if a.me == root {
			transport.Move(slot, unsafe.Add(a.callAt(r, c.PeerPos).In.Ptr, i*per), min(per, bytes-i*per))
		}
	}, func(i int, step uint64) error {
		if i == 0 && !small {
			if err := a.awaitAll(k, filled, step+1); err != nil {
				return err
			}
		}
		n := min(per, bytes-i*per)
		if a.me == root {
			own(i*per, n)
			return nil
		}
		if err := a.await(k, root, filled, step+1); err != nil {
			return err
		}
		transport.MoveToAll(a.outs(r, i*per/c.Out.Size), a.slots[step&1][root], n)
		return nil
	})
}
