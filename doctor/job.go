// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/internal/words"
)

// Options say what to check of a job.
type Options struct {
	Hosts   []string // the first is where workers meet
	Port    int      // there
	Program []string // files that must be the same on all of them, such as the program that is to run
	// Connect starts [Agent] on a host. Close of what it returns says why the agent ended, if that was not asked for.
	Connect func(host string) (io.ReadWriteCloser, error)
}

// answerTime is how long an agent may take for an answer: it may have to wait for several commands.
const answerTime = 2 * time.Minute

// peer is a machine of a job.
type peer struct {
	host string
	conn io.ReadWriteCloser
	in   *json.Decoder
	out  *json.Encoder

	found []Finding
	port  int // where it listens
	word  string
	skew  time.Duration // how far its clock is ahead of ours
	doubt time.Duration // and how far that may be wrong
}

// Job checks the machines of a job, and whether they reach each other.
func Job(o Options) (all []Finding) {
	peers := make([]*peer, len(o.Hosts))
	each := func(do func(p *peer)) {
		var running sync.WaitGroup
		for _, p := range peers {
			if p.conn != nil {
				running.Go(func() { do(p) })
			}
		}
		running.Wait()
	}
	var connecting sync.WaitGroup
	for i, host := range o.Hosts {
		peers[i] = &peer{host: host}
		connecting.Go(func() { peers[i].connect(o.Connect) })
	}
	connecting.Wait()
	each((*peer).measureClock)
	each(func(p *peer) { p.checkMachine() })
	each(func(p *peer) {
		port := 0
		if p == peers[0] {
			port = o.Port
		}
		p.listen(port)
	})
	each(func(p *peer) {
		for _, other := range peers {
			p.reach(other)
		}
	})
	programs := programs(peers, o.Program)
	for _, p := range peers {
		all = append(all, p.found...)
		if p.conn != nil {
			_ = p.conn.Close()
		}
	}
	return append(append(all, programs...), clocks(peers)...)
}

func (p *peer) add(check string, f Finding) {
	f.Host, f.Check = p.host, check
	p.found = append(p.found, f)
}

// ask waits for the answer of the agent.
func (p *peer) ask(r request) (a answer, err error) {
	if err := p.out.Encode(r); err != nil {
		return a, err
	}
	timer := time.AfterFunc(answerTime, func() { _ = p.conn.Close() })
	defer timer.Stop()
	err = p.in.Decode(&a)
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

func (p *peer) connect(connect func(string) (io.ReadWriteCloser, error)) {
	conn, err := connect(p.host)
	if err == nil {
		var hello answer
		if hello, err = p.greet(conn); err == nil {
			p.add("ssh", ok("It can be reached, and runs epl."))
			p.add("version", sameVersion(hello))
			return
		}
		p.conn = nil
		if why := conn.Close(); why != nil {
			err = why
		}
	}
	var failed *RemoteError
	if errors.As(err, &failed) && !failed.Login {
		p.add("ssh", problem("on "+p.host+": "+install, "It can be reached, but does not run epl: %v.", failed))
		return
	}
	p.add("ssh", problem(opens(p.host, err), "It cannot be reached: %v.", err))
}

// opens is what lets ssh reach a host, by what it said.
func opens(host string, err error) string {
	first := "ssh-copy-id " + host
	switch says := err.Error(); {
	case strings.Contains(says, "resolve hostname"):
		first = "give " + host + " an address, in DNS or /etc/hosts, or correct its name"
	case strings.Contains(says, "Connection refused"), strings.Contains(says, "timed out"), strings.Contains(says, "No route to host"):
		first = "start sshd on " + host + ", let it through the firewall, or name its port: --ssh 'ssh -p PORT'"
	}
	return first + "; then this must work without a question: ssh " + host + " true"
}

// greet asks an agent who it is.
func (p *peer) greet(conn io.ReadWriteCloser) (answer, error) {
	p.in, p.out, p.conn = json.NewDecoder(conn), json.NewEncoder(conn), conn
	return p.ask(request{Do: doHello})
}

// RemoteError says why a command on another machine ended.
type RemoteError struct {
	Login bool // ssh itself failed
	Text  string
}

// Error implements error.
func (e *RemoteError) Error() string { return e.Text }

// install is how commands come to a machine.
const install = "go install github.com/easyparallel/epl/cmd/epl@latest github.com/easyparallel/epl/cmd/epl-launch@latest"

func sameVersion(a answer) Finding {
	want := "epl-launch " + version.Version
	switch {
	case a.Version != version.Version:
		return problem(install, "Its epl is %s, and %s here: workers of different versions refuse each other.", a.Version, version.Version)
	case a.Launcher == "":
		return problem(install, "There is no epl-launch in PATH, nor beside epl.")
	case a.Launcher != want:
		return problem(install, "Its launcher is %s, and should be %s.", a.Launcher, want)
	}
	return ok("epl and epl-launch are %s, as here.", version.Version)
}

// measureClock compares clocks as NTP does: the quickest of some answers is the best.
func (p *peer) measureClock() {
	for i := range 5 {
		began := time.Now()
		a, err := p.ask(request{Do: doNow})
		took := time.Since(began)
		if err != nil {
			return
		}
		if i == 0 || took/2 < p.doubt {
			p.skew, p.doubt = time.Unix(0, a.Now).Sub(began.Round(0).Add(took/2)), took/2
		}
	}
}

// tooFar is how far clocks may be apart without a warning.
const tooFar = time.Second

// clocks compares the clocks of all machines.
func clocks(peers []*peer) []Finding {
	hosts := len(peers)
	peers = slices.DeleteFunc(slices.Clone(peers), func(p *peer) bool { return p.conn == nil })
	if len(peers) < 2 {
		return nil
	}
	bySkew := func(a, b *peer) int { return cmp.Compare(a.skew, b.skew) }
	behind, ahead := slices.MinFunc(peers, bySkew), slices.MaxFunc(peers, bySkew)
	apart, doubt := ahead.skew-behind.skew, ahead.doubt+behind.doubt
	f := ok("The clocks of %s differ by at most %s.", answered(len(peers), hosts), max(apart+doubt, time.Millisecond).Round(time.Millisecond))
	if apart > tooFar+doubt {
		f = warning("sudo timedatectl set-ntp true, on both", "The clock of %s is %s ahead of that of %s: times in logs mislead, and TLS may refuse certificates.",
			ahead.host, apart.Round(time.Millisecond), behind.host)
	}
	f.Check = "clocks"
	return []Finding{f}
}

// answered says of which hosts a finding is.
func answered(some, all int) string {
	if some < all {
		return fmt.Sprintf("the %s that answered", words.Count(some, "host"))
	}
	return "all hosts"
}

// checkMachine takes what is wrong with the machine itself.
func (p *peer) checkMachine() {
	a, err := p.ask(request{Do: doCheck})
	if err != nil {
		p.add("machine", problem("on "+p.host+": epl doctor", "It cannot be checked: %v.", err))
		return
	}
	good := 0
	for _, f := range a.Findings {
		if f.Level == OK {
			good++
			continue
		}
		p.add(f.Check, f)
	}
	p.add("machine", ok("%d of %s of the machine itself are ok.", good, words.Count(len(a.Findings), "check")))
}

func (p *peer) listen(port int) {
	a, err := p.ask(request{Do: doListen, Port: port})
	if err != nil {
		p.add("port", problem("epl-launch --port with another number", "It cannot listen at port %d, where the workers meet: %v.", port, err))
		return
	}
	p.port, p.word = a.Port, a.Word
}

// reach looks at whether workers on this machine can connect to those on another.
func (p *peer) reach(other *peer) {
	if other.port == 0 {
		return // which was said
	}
	check := "to " + other.host
	address := net.JoinHostPort(other.host, strconv.Itoa(other.port))
	fix := fmt.Sprintf("let %s through the firewall of %s to all TCP ports; the name %s must mean the same machine on all of them", p.host, other.host, other.host)
	switch a, err := p.ask(request{Do: doDial, Address: address}); {
	case err != nil:
		p.add(check, problem(fix, "It cannot connect to %s: %v.", address, err))
	case a.Word != other.word:
		p.add(check, problem(fix, "Who answers it at %s is another program or machine.", address))
	default:
		p.add(check, ok("It connects to %s.", address))
	}
}

// programs compares files on all machines.
func programs(peers []*peer, files []string) (all []Finding) {
	if len(files) == 0 {
		return nil
	}
	sums := map[string]map[string][]string{} // by file, then by sum: hosts
	for _, p := range peers {
		if p.conn == nil {
			continue
		}
		a, err := p.ask(request{Do: doSums, Files: files})
		if err != nil {
			p.add("program", problem("on "+p.host+": epl doctor", "It cannot say which files it has: %v.", err))
			continue
		}
		for _, file := range files {
			if sums[file] == nil {
				sums[file] = map[string][]string{}
			}
			sums[file][a.Sums[file]] = append(sums[file][a.Sums[file]], p.host)
		}
	}
	for _, file := range files {
		if len(sums[file]) > 0 {
			all = append(all, same(file, sums[file], len(peers)))
		}
	}
	return all
}

// same tells whether a file is the same on the hosts that answered, of so many. Those without it have the sum "".
func same(file string, hosts map[string][]string, of int) (f Finding) {
	missing, some := hosts[""], 0
	for _, names := range hosts {
		some += len(names)
	}
	switch {
	case len(missing) == some:
		f = problem("build it, and copy it to all hosts", "%s is on none of them: %s.", file, strings.Join(missing, ", "))
	case len(missing) > 0:
		f = problem("scp "+file+" "+missing[0]+":"+file, "%s is not on %s.", file, strings.Join(missing, ", "))
	case len(hosts) > 1:
		var groups []string
		for _, names := range hosts {
			groups = append(groups, strings.Join(names, ", "))
		}
		slices.Sort(groups)
		f = problem("copy one file to all hosts", "%s differs between %s.", file, strings.Join(groups, " and "))
	default:
		f = ok("%s is the same file on %s.", file, answered(some, of))
	}
	f.Check = "program"
	return f
}
