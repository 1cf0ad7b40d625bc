package comm

import (
	"slices"
	"testing"
)

func TestTheSharedHeapJoinsWhatIsGivenBack(t *testing.T) {
	p := heapPiece{free: []span{{64, 1024}}}
	var at []int
	for range 3 {
		at = append(at, p.take(320))
	}
	if !slices.Equal(at, []int{64, 384, 704}) || len(p.free) != 0 || p.take(64) != -1 {
		t.Fatalf("taken %d, free %v", at, p.free)
	}
	for _, i := range []int{0, 2, 1} {
		p.give(at[i], 320)
	}
	if !slices.Equal(p.free, []span{{64, 1024}}) {
		t.Errorf("free %v", p.free)
	}
}
