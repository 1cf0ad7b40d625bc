// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// leaseSeconds is how long a launcher's claim outlives it, if it dies without a word.
	leaseSeconds = 10
	// etcdTimeout is how long an etcd may take to answer.
	etcdTimeout = 10 * time.Second
	// meetTimeout is how long to wait for the launchers of the other machines.
	meetTimeout = 5 * time.Minute
)

// claim is what a launcher writes at an etcd, under the number of its machine. It goes when the launcher does.
type claim struct {
	Host    string // the machine's name
	Address string // where the first machine can be reached
	Port    int
	Job     string // equal for launchers of the same job only; does not reveal the token
	Workers int
	created int64
}

// overEtcd is this machine's crew of a job whose launchers find each other at an etcd.
func overEtcd(ctx context.Context, o Options, job spec) (crews []place, leave func(), err error) {
	machines := make([]machine, o.NumMachines)
	if err := deal(machines, o.Workers); err != nil {
		return nil, nil, err
	}
	token, err := o.token()
	if err != nil {
		return nil, nil, err
	}
	mine := claim{Host: hostName(), Port: o.port(), Workers: o.Workers, Job: fingerprint(token)}
	rank, claims, leave, err := claimMachine(ctx, o.Rendezvous, mine, o.NumMachines)
	if err != nil {
		return nil, nil, err
	}
	for i := range machines {
		machines[i].name = claims[i].Host
	}
	o.Port, o.Rendezvous = claims[0].Port, ""
	if crews, err = oneOfSeveral(o, job, machines, rank, claims[0].Address); err != nil {
		leave()
		return nil, nil, err
	}
	return crews, leave, nil
}

// fingerprint tells tokens apart.
func fingerprint(token string) string {
	h := hmac.New(sha256.New, []byte(token))
	h.Write([]byte("epl-launch"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// parseEtcd takes apart etcd://HOST:PORT[,HOST:PORT]/PREFIX.
func parseEtcd(url string) (endpoints []string, prefix string, err error) {
	at, prefix, ok := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	prefix = strings.Trim(prefix, "/")
	for endpoint := range strings.SplitSeq(at, ",") {
		if host, port, err := net.SplitHostPort(endpoint); err != nil || host == "" || port == "" {
			ok = false
		}
		endpoints = append(endpoints, endpoint)
	}
	if !ok || prefix == "" {
		return nil, "", errors.Errorf("epl: --rdzv %q: expected etcd://HOST:PORT/PREFIX, with a prefix of the job's own", url)
	}
	return endpoints, "/" + prefix, nil
}

// claimMachine takes the lowest number that no other launcher has, and waits until all machines are there. leave gives
// the number back.
func claimMachine(ctx context.Context, url string, mine claim, machines int) (rank int, claims []claim, leave func(), err error) {
	endpoints, prefix, err := parseEtcd(url)
	if err != nil {
		return 0, nil, nil, err
	}
	if mine.Address, err = addressTowards(endpoints[0]); err != nil {
		return 0, nil, nil, errors.Errorf("epl: --rdzv %q: %v", url, err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: etcdTimeout, Logger: zap.NewNop()})
	if err != nil {
		return 0, nil, nil, errors.Errorf("epl: --rdzv %q: %v", url, err)
	}
	alive, stop := context.WithCancel(context.Background())
	var lease clientv3.LeaseID
	leave = func() {
		stop()
		if lease != 0 {
			end, cancel := context.WithTimeout(context.Background(), etcdTimeout)
			client.Revoke(end, lease) // else it goes by itself a little later
			cancel()
		}
		client.Close()
	}
	defer func() {
		if err != nil {
			leave()
			leave = nil
		}
	}()

	first, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	granted, err := client.Grant(first, leaseSeconds)
	if err != nil {
		return 0, nil, leave, errors.Errorf("epl: --rdzv %q: the etcd does not answer: %v", url, err)
	}
	lease = granted.ID
	kept, err := client.KeepAlive(alive, lease)
	if err != nil {
		return 0, nil, leave, errors.Errorf("epl: --rdzv %q: %v", url, err)
	}
	go func() {
		for range kept { // until the end; the answers say nothing new
		}
	}()
	if rank, err = take(first, client, prefix, mine, machines, lease); err != nil {
		return 0, nil, leave, err
	}
	waiting, cancelWaiting := context.WithTimeout(ctx, meetTimeout)
	defer cancelWaiting()
	claims, err = gather(waiting, client, prefix, rank, mine, machines)
	return rank, claims, leave, err
}

// key is where the claim of a machine stands.
func key(prefix string, rank int) string { return path.Join(prefix, fmt.Sprintf("machine-%d", rank)) }

// take writes the claim under the lowest free number.
func take(ctx context.Context, client *clientv3.Client, prefix string, mine claim, machines int, lease clientv3.LeaseID) (rank int, err error) {
	value, err := json.Marshal(mine)
	if err != nil {
		return 0, err
	}
	there, _, err := read(ctx, client, prefix)
	if err != nil {
		return 0, err
	}
	for _, c := range there {
		if err := mine.agrees(c, prefix); err != nil {
			return 0, err
		}
	}
	for rank := range machines {
		answer, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key(prefix, rank)), "=", 0)).
			Then(clientv3.OpPut(key(prefix, rank), string(value), clientv3.WithLease(lease))).Commit()
		if err != nil {
			return 0, errors.Errorf("epl: cannot take a machine number at the etcd: %v", err)
		}
		if answer.Succeeded {
			return rank, nil
		}
	}
	return 0, errors.Errorf("epl: a job of %d machines is running under %s at the etcd already; use another prefix, or wait until it has ended "+
		"(the places of a launcher that died are free after %d seconds)", machines, prefix, leaseSeconds)
}

// read returns the claims by machine number, and the revision that they are of.
func read(ctx context.Context, client *clientv3.Client, prefix string) (claims map[int]claim, revision int64, err error) {
	answer, err := client.Get(ctx, path.Join(prefix, "machine-"), clientv3.WithPrefix())
	if err != nil {
		return nil, 0, errors.Errorf("epl: cannot read who else is at the etcd: %v", err)
	}
	claims = map[int]claim{}
	for _, kv := range answer.Kvs {
		var rank int
		var c claim
		if _, err := fmt.Sscanf(path.Base(string(kv.Key)), "machine-%d", &rank); err != nil {
			continue
		}
		if err := json.Unmarshal(kv.Value, &c); err != nil {
			return nil, 0, errors.Errorf("epl: %s at the etcd is not from a launcher of this version: %v; use another prefix", kv.Key, err)
		}
		c.created = kv.CreateRevision
		claims[rank] = c
	}
	return claims, answer.Header.Revision, nil
}

// agrees tells whether another launcher belongs to the same job.
func (c claim) agrees(other claim, prefix string) error {
	if c.Job != other.Job {
		return errors.Errorf("epl: another job is starting or running under %s at the etcd, from machine %s: its EPL_TOKEN differs; "+
			"use another prefix, or the same token", prefix, other.Host)
	}
	if c.Workers != other.Workers {
		return errors.Errorf("epl: machine %s has --num_workers %d, this one %d; give all machines the same",
			other.Host, other.Workers, c.Workers)
	}
	return nil
}

// gather waits until all machines have a claim. Of two jobs that began at the same time the later one gives way.
func gather(ctx context.Context, client *clientv3.Client, prefix string, rank int, mine claim, machines int) ([]claim, error) {
	for {
		there, revision, err := read(ctx, client, prefix)
		if err != nil {
			return nil, err
		}
		me, found := there[rank]
		if !found {
			return nil, errors.Errorf("epl: the etcd has dropped this machine's claim %s: was it unreachable for more than %d seconds?",
				key(prefix, rank), leaseSeconds)
		}
		all := make([]claim, machines)
		complete := true
		var missing []string
		for i := range all {
			other, found := there[i]
			if found {
				if err := mine.agrees(other, prefix); err != nil {
					if other.created < me.created {
						return nil, err
					}
					found = false
				}
			}
			if all[i] = other; !found {
				complete = false
				missing = append(missing, itoa(i))
			}
		}
		if complete {
			return all, nil
		}
		watch, cancel := context.WithCancel(ctx)
		changes := client.Watch(watch, path.Join(prefix, "machine-"), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		_, more := <-changes
		cancel()
		if !more || ctx.Err() != nil {
			slices.Sort(missing)
			return nil, errors.Errorf("epl: not all of the %d launchers came to the etcd: missing machine %s; start epl-launch on each machine",
				machines, strings.Join(missing, ", "))
		}
	}
}

// addressTowards returns this machine's address on the way to another, where that one's neighbours can reach it too.
func addressTowards(endpoint string) (string, error) {
	conn, err := net.Dial("udp", endpoint) // sends nothing
	if err != nil {
		return "", err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}
