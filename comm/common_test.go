// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package comm

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/shm"
)

// writeTogether lets every rank write its part of common memory, and read the whole.
func writeTogether(c *Communicator) error {
	const part = 3 << 20
	m, err := c.Common(part*c.Size(), "test")
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("there is no common memory")
	}
	defer m.Release()
	if m.Ranks() != c.Size() || m.ID() <= 0 {
		return errors.Errorf("it is of %d ranks, and its number is %d", m.Ranks(), m.ID())
	}
	for round := range 3 {
		for i := range part {
			m.Bytes()[c.Position()*part+i] = byte(c.Position() + round + 1)
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		for i, b := range m.Bytes()[:part*c.Size()] {
			if b != byte(i/part+round+1) {
				return errors.Errorf("round %d: byte %d is %d", round, i, b)
			}
		}
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

func init() {
	processJobs["common memory"] = func(w *World) error {
		c, err := w.All().Communicator(w.local[0], 0)
		if err != nil {
			return err
		}
		before := strings.Count(selfMaps(), commonName)
		for range 2 {
			if err := writeTogether(c); err != nil {
				return err
			}
		}
		if strings.Count(selfMaps(), commonName) != before || openCommons() != 0 {
			err = errors.New("common memory is left")
		}
		return err
	}
}

const commonName = "memfd:epl-common"

func selfMaps() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err.Error()
	}
	return string(maps)
}

func openCommons() int {
	commons.Lock()
	defer commons.Unlock()
	return len(commons.all)
}

func TestProcessesHaveCommonMemory(t *testing.T) {
	workers, outputs := startProcesses(t, "common memory", 3)
	for i, c := range workers {
		if err := c.Wait(); err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, outputs[i])
		}
	}
}

func TestRanksOfAHostHaveCommonMemory(t *testing.T) {
	for name, w := range map[string]func() (*World, error){
		"one worker":  func() (*World, error) { return NewInProcess(3, Options{}) },
		"two workers": func() (*World, error) { return newWorlds(func(int) string { return "a" }, two)(4, Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := w()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, w)
			files := descriptors(t)
			mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
				if !c.Group().OnOneHost() {
					return errors.New("it is not known that all are on one host")
				}
				return writeTogether(c)
			})
			if n := openCommons(); n != 0 || strings.Contains(selfMaps(), commonName) {
				t.Errorf("%d pieces of common memory are left", n)
			}
			if after := descriptors(t); name == "one worker" && after != files {
				t.Errorf("%d files are open, %d were", after, files)
			}
		})
	}
}

// Who cannot have common memory says so to all.
func TestWithoutCommonMemoryAllKnow(t *testing.T) {
	none := func(t *testing.T, w *World) {
		t.Helper()
		mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
			m, err := c.Common(1000, "test")
			if m != nil {
				return errors.New("there is common memory")
			}
			if err != nil {
				return err
			}
			return c.Barrier() // they still communicate
		})
		if n := openCommons(); n != 0 {
			t.Errorf("%d pieces of common memory are left", n)
		}
	}
	t.Run("two hosts", func(t *testing.T) {
		w, err := newWorlds(func(i int) string { return string(rune('a' + i)) }, two)(4, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(t, w)
		none(t, w)
	})
	t.Run("no memory", func(t *testing.T) {
		w := sharing(t, 2, one, Options{Timeout: time.Minute})
		mustAll(t, ends(t, w.All(), 0), (*Communicator).Barrier)
		replace(t, &shm.Reserve, func(int, uint32, int64, int64) error { return unix.ENOSPC })
		none(t, w)
	})
}

// Memory stays as long as somebody keeps it.
func TestCommonMemoryStaysAsLongAsSomebodyKeepsIt(t *testing.T) {
	w, err := NewInProcess(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	var kept [2]*CommonMemory
	mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
		m, err := c.Common(1000, "test")
		if err != nil {
			return err
		}
		kept[c.Position()] = m
		m.Keep()
		m.Bytes()[c.Position()] = 7
		m.Release()
		return nil
	})
	if kept[0] != kept[1] {
		t.Fatal("two ranks of a process mapped it twice")
	}
	kept[0].Release()
	if m := kept[1].Bytes(); m[0] != 7 || m[1] != 7 {
		t.Errorf("it holds %v", m[:2])
	}
	kept[1].Release()
	if n := openCommons(); n != 0 {
		t.Errorf("%d pieces of common memory are left", n)
	}
}
