package comm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/checked"
)

// flip copies bytes, and changes one bit of one of them.
func flip(r io.Reader, w io.Writer, at int64, bit int) {
	if n, _ := io.CopyN(w, r, at); n < at {
		return
	}
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return
	}
	b[0] ^= 1 << bit
	if _, err := w.Write(b[:]); err == nil {
		_, _ = io.Copy(w, r)
	}
}

// damaging makes jobs in which one bit of what one worker sends another is changed, at some byte of one connection.
func damaging(places []Place, purpose string, from, to int, at int64, opts Options, wrap func(net.Conn) net.Conn) (*World, error) {
	j := newTestJob(len(places))
	j.wrap = wrap
	j.between = func(name string, a, b int, r io.Reader, w io.Writer) {
		if a == from && b == to && strings.HasSuffix(name, purpose) {
			flip(r, w, at, int(at)%8)
			return
		}
		_, _ = io.Copy(w, r)
	}
	return newJob(j, places, opts)
}

// What the ranks of a world do, and how long the stream from one worker to another is at least.
var damageCases = []struct {
	name    string
	places  []Place
	purpose string
	bytes   int64
	call    func(c *Communicator, buf []float32) error
	size    int // elements
	says    string
}{
	{"small all-reduce", spread(3), "collectives", 12 + 32 + 400, allReduce, 100, "all-reduce #1"},
	{"large all-reduce", spread(3), "collectives", 1_000_000, allReduce, 600_000, "all-reduce #1"},
	{"all-reduce of workers with two ranks", []Place{{2, "a"}, {2, "b"}}, "collectives", 1_000_000, allReduce, 600_000, "all-reduce #1"},
	{"all-reduce of leaders", []Place{{1, "a"}, {1, "b"}, {1, "a"}, {1, "b"}}, "leaders collectives", 1_000_000, allReduce, 600_000, "all-reduce #1"},
	{"reduce-scatter", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: ReduceScatter, In: buf, Out: buf[len(buf)/3*c.Position() : len(buf)/3*(c.Position()+1)]})
	}, 600_000, "reduce-scatter #1"},
	{"all-gather", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: AllGather, In: buf[len(buf)/3*c.Position() : len(buf)/3*(c.Position()+1)], Out: buf})
	}, 600_000, "all-gather #1"},
	{"all-to-all", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: AllToAll, In: slices.Clone(buf), Out: buf})
	}, 600_000, "all-to-all #1"},
	{"broadcast", spread(3), "collectives", 700_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: Broadcast, Buf: buf, Root: 1})
	}, 600_000, "broadcast from rank 1 #1"},
	{"barrier", spread(3), "collectives", 12 + 32, func(c *Communicator, _ []float32) error { return c.Barrier() }, 0, "barrier #1"},
	{"short message", spread(3), "exchanges", 12 + 72 + 400, sendToFirst, 100, "rank 0"},
	{"long message", spread(3), "exchanges", 1_000_000, sendToFirst, 600_000, "rank 0"},
}

func spread(n int) (places []Place) {
	for i := range n {
		places = append(places, Place{1, fmt.Sprint("host", i)})
	}
	return places
}

func allReduce(c *Communicator, buf []float32) error { return c.AllReduce(buf, Sum) }

func sendToFirst(c *Communicator, buf []float32) error {
	switch c.Position() {
	case 0:
		return c.Recv(buf, 1, 0)
	case 1:
		return c.Send(buf, 0, 0)
	}
	return nil
}

func TestDataThatWereChangedOnTheirWayNameBothRanksAndTheCall(t *testing.T) {
	for _, c := range damageCases {
		for at := int64(0); at < c.bytes; at += 1 + at*9 { // in heads, headers and data of many records
			for kind, wrap := range map[string]func(net.Conn) net.Conn{"descriptor": nil, "opaque": func(c net.Conn) net.Conn { return opaque{c} }} {
				t.Run(fmt.Sprintf("%s/byte %d/%s", c.name, at, kind), func(t *testing.T) {
					if testing.Short() && kind == "opaque" {
						t.Skip("a variant; not with -short")
					}
					t.Parallel()
					right := results(t, c.call, c.places, c.size)
					w, err := damaging(c.places, c.purpose, 1, 0, at, Options{Timeout: time.Minute}, wrap)
					if err != nil {
						t.Fatal(err)
					}
					defer closeAll(t, w)
					cs := ends(t, w.All(), 0)
					bufs := make([][]float32, len(cs))
					errs := onAll(cs, func(e *Communicator) error {
						bufs[e.Position()] = data(e.Position(), c.size)
						return c.call(e, bufs[e.Position()])
					})
					var corruption *CorruptionError
					if !errors.As(errs[0], &corruption) {
						t.Fatalf("rank 0 does not notice: %v", errs[0])
					}
					wantError(t, errs[0], "rank", "(worker 1) sent to rank", "(worker 0)", c.says, "arrived damaged", "CRC-32C")
					if corruption.Workers != [2]int{1, 0} || !slices.Contains(corruption.To, 0) {
						t.Errorf("%v to %v", corruption.From, corruption.To)
					}
					for i, err := range errs { // who has got all has got what is right
						if err == nil && !slices.Equal(bufs[i], right[i]) {
							t.Errorf("rank %d goes on with wrong data", i)
						}
					}
				})
			}
		}
	}
}

// data is what a rank gives.
func data(rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(rank), 7))
	b := make([]float32, n)
	for i := range b {
		b[i] = rng.Float32()
	}
	return b
}

// results is what the ranks have after a call, if nothing goes wrong.
func results(t *testing.T, call func(*Communicator, []float32) error, places []Place, size int) [][]float32 {
	t.Helper()
	w, err := newJob(newTestJob(len(places)), places, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	cs := ends(t, w.All(), 0)
	bufs := make([][]float32, len(cs))
	mustAll(t, cs, func(c *Communicator) error {
		bufs[c.Position()] = data(c.Position(), size)
		return call(c, bufs[c.Position()])
	})
	return bufs
}

// choppy is a link that moves as much as it likes.
type choppy struct {
	rng *rand.Rand
	b   *bytes.Buffer
}

func (c choppy) some(a, b []byte) ([]byte, []byte) {
	n := c.rng.IntN(len(a) + len(b) + 1)
	if c.rng.IntN(3) == 0 {
		n = len(a) + len(b)
	}
	return a[:min(n, len(a))], b[:max(0, min(n-len(a), len(b)))]
}

func (c choppy) read(a, b []byte) (int, error) {
	a, b = c.some(a, b)
	n, _ := c.b.Read(a)
	more, _ := c.b.Read(b)
	return n + more, nil
}

func (c choppy) write(a, b []byte) (int, error) {
	a, b = c.some(a, b)
	c.b.Write(a)
	c.b.Write(b)
	return len(a) + len(b), nil
}

func (choppy) close() {}

func TestAStreamCarriesWhatIsWrittenHoweverItIsMoved(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		link := choppy{rng, &bytes.Buffer{}}
		out, in := stream{link: link, checks: true}, stream{link: link, checks: true}
		sent := make([]byte, rng.IntN(1_500_000))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		var got []byte
		size := func() int { return 1 + rng.IntN([]int{10, 1000, 300_000}[rng.IntN(3)]) }
		piece, place := sent[:0], []byte(nil)
		for left := sent; len(got) < len(sent); {
			if len(piece) == 0 {
				piece = left[:min(len(left), size())]
				left = left[len(piece):]
			}
			n, _, err := out.write(piece)
			if err != nil {
				t.Fatal(err)
			}
			piece = piece[n:]
			if len(place) == 0 {
				place = make([]byte, min(size(), len(sent)-len(got)))
			}
			if n, _, err = in.read(place); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got, place = append(got, place[:n]...), place[n:]
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: other bytes came", seed)
		}
		if link.b.Len() > 0 || len(in.ahead) > 0 {
			t.Errorf("seed %d: more came than was written", seed)
		}
	}
}

func TestAStreamHandsNothingOutThatWasChanged(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		link := choppy{rng, &bytes.Buffer{}}
		out, in := stream{link: link, checks: true}, stream{link: link, checks: true}
		sent := make([]byte, 1+rng.IntN(2000))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		for left := sent; len(left) > 0; {
			piece := left[:1+rng.IntN(len(left))]
			for left = left[len(piece):]; len(piece) > 0; {
				n, _, _ := out.write(piece)
				piece = piece[n:]
			}
		}
		all := link.b.Bytes()
		all[rng.IntN(len(all))] ^= byte(1 + rng.IntN(255))
		var got []byte
		for place := make([]byte, len(sent)); ; {
			n, _, err := in.read(place)
			got, place = append(got, place[:n]...), place[n:]
			if err != nil {
				if damage := new(checked.DamageError); !errors.As(err, &damage) {
					t.Errorf("seed %d: %v", seed, err)
				}
				break
			}
			if len(got) == len(sent) {
				t.Fatalf("seed %d: nobody has noticed", seed)
			}
		}
		if !bytes.Equal(got, sent[:len(got)]) {
			t.Errorf("seed %d: other bytes came before it was noticed", seed)
		}
	}
}
