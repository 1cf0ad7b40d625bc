package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/easyparallel/epl/launch"
)

// launcher is a launcher in a process of its own, which can be killed.
func launcher(text string) int {
	var o launch.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	os.Unsetenv(launchVariable)
	status, err := launch.Run(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}
