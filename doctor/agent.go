// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/easyparallel/epl/internal/version"
)

// request is what an agent on another machine is asked; one line of JSON. The answer is another.
type request struct {
	Do      string   `json:"do"`
	Port    int      `json:"port,omitempty"`    // of listen; 0: any
	Address string   `json:"address,omitempty"` // of dial
	Files   []string `json:"files,omitempty"`   // of sums
}

// What an agent can be asked.
const (
	doHello  = "hello"
	doNow    = "now"
	doSums   = "sums"
	doListen = "listen"
	doDial   = "dial"
	doCheck  = "check"
)

type answer struct {
	Error    string            `json:"error,omitempty"`
	Version  string            `json:"version,omitempty"`
	Launcher string            `json:"launcher,omitempty"` // what epl-launch says of its version
	Now      int64             `json:"now,omitempty"`      // nanoseconds since 1970
	Sums     map[string]string `json:"sums,omitempty"`     // SHA-256 of files that are there
	Port     int               `json:"port,omitempty"`
	Word     string            `json:"word,omitempty"` // what a listener tells who connects, and who connects has read
	Findings []Finding         `json:"findings,omitempty"`
}

// Agent answers what [Job] asks on another machine, until the input ends.
func Agent(s *System, input io.Reader, output io.Writer) error {
	a := agent{System: s}
	defer func() {
		for _, l := range a.listeners {
			_ = l.Close()
		}
	}()
	in, out := json.NewDecoder(input), json.NewEncoder(output)
	for {
		var r request
		if err := in.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		answered, err := a.answer(r)
		if err != nil {
			answered.Error = err.Error()
		}
		if err := out.Encode(answered); err != nil {
			return err
		}
	}
}

type agent struct {
	*System
	listeners []net.Listener
}

func (a *agent) answer(r request) (t answer, err error) {
	switch r.Do {
	case doHello:
		t.Version = version.Version
		if t.Launcher, err = a.Run("epl-launch", "--version"); err != nil { // in PATH, or beside this program
			if self, err := os.Executable(); err == nil {
				t.Launcher, _ = a.Run(filepath.Join(filepath.Dir(self), "epl-launch"), "--version")
			}
		}
		return t, nil
	case doNow:
		t.Now = time.Now().UnixNano()
	case doSums:
		t.Sums = map[string]string{}
		for _, file := range r.Files {
			if sum, err := sumOf(file); err == nil { // one that is not there has none
				t.Sums[file] = sum
			}
		}
	case doListen:
		t.Port, t.Word, err = a.listen(r.Port)
	case doDial:
		t.Word, err = dial(r.Address)
	case doCheck:
		t.Findings = Machine(a.System)
	}
	return t, err
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// listen tells everybody who connects a random word, so that nobody takes another program for this one.
func (a *agent) listen(port int) (at int, word string, err error) {
	l, err := a.Listen(net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return 0, "", err
	}
	a.listeners = append(a.listeners, l)
	word = rand.Text()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			_, _ = io.WriteString(c, word) // the other side says what it has read
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, word, nil
}

func dial(address string) (word string, err error) {
	c, err := net.DialTimeout("tcp", address, connectTime)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(connectTime)); err != nil {
		return "", err
	}
	read, err := io.ReadAll(io.LimitReader(c, 64))
	return string(read), err
}
