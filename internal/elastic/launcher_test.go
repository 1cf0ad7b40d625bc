package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/easyparallel/epl/launch"
)

// launched are options of a launcher.
type launched struct{ Workers, MinWorkers, MaxRestarts int }

// launcher is a launcher in a process of its own, which can be killed.
func launcher(text string) int {
	var o launched
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	os.Unsetenv(launchVariable)
	status, err := launch.Run(context.Background(), launch.Options{Command: os.Args[:1], Workers: o.Workers, MinWorkers: o.MinWorkers, MaxRestarts: o.MaxRestarts})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}
