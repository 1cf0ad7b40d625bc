package comm

import "testing"

func TestProcessorsAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8": 5, "0,2-3,16-19": 7, "": 0, "nonsense": 0, "3-1": 0} {
		if got := countProcessors(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	if processors() < 1 {
		t.Error("this machine has none")
	}
}
