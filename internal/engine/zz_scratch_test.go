package engine_test

import (
	"os"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

var _ = layers.Dense

func big(scope *model.Scope, x *Node) *Node {
	epl.With(x, epl.Replicate(1, "all"), func() {
		m := transformer.New(scope).WithVocabSize(320).WithEmbedDim(64).WithNumLayers(12).WithNumHeads(4).WithHeadDim(16).
			WithMaxPosEmbed(16).WithDropout(0.1).WithCausalMask(true)
		x = m.Logits(x, transformer.CallOptions{})
	})
	return x
}

func TestScratch(t *testing.T) {
	want := os.Getenv("SCRATCH")
	if want == "" { t.Skip() }
	ms := append(equiv.Models(), equiv.Model{"big", big, loss.SparseCategoricalCrossEntropyLogits, equiv.Tokens(4, 16, 32)})
	for _, m := range ms {
		if m.Name != want { continue }
		cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": os.Getenv("REFUSE") == ""})
		if err != nil { t.Fatal(err) }
		env, err := epl.Init(cfg)
		if err != nil { t.Fatal(err) }
		var opt optimizer.Interface = optimizer.StochasticGradientDescent()
		if os.Getenv("ADAM") != "" { opt = optimizer.Adam().Done() }
		if _, err := equiv.Train(env.Backend(), m, epl.Optimizer(opt), 2); err != nil { t.Log(err) }
		env.Explain(os.Stdout)
		env.Close()
	}
}
