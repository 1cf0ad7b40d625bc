package calibrate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
)

func TestAMachineHasACompleteProfile(t *testing.T) {
	var said []string
	p, err := Machine(Options{Each: time.Nanosecond, Progress: func(what string) { said = append(said, what) }})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := cost.ParseProfile(text)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if again.Name != cost.This || again.Cores < 1 || again.Within == nil || again.Inside == nil || again.Between == nil || again.Launch == 0 || !again.Fuses {
		t.Errorf("%s", text)
	}
	if again.Cores > 1 && again.Teams[again.Cores] == nil {
		t.Errorf("it says nothing of a device with all %d cores", again.Cores)
	}
	for _, want := range []string{"dot/float32", "math/float32", "transport tcp"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("it did not say that it measures %s: %q", want, said)
		}
	}
}

func TestTransportsThatThereAreNot(t *testing.T) {
	if err := links(&cost.Profile{}, Options{Transports: []string{"pigeons"}}); err == nil || !strings.Contains(err.Error(), "use in-process, shared-memory, tcp") {
		t.Errorf("%v", err)
	}
}
