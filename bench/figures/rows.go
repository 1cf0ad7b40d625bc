// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// figures are those that are predicted, and how.
var figures = []struct {
	name    string
	predict func(t *table) error
}{
	{"9", (*table).resnetData},
	{"10", (*table).bertData},
	{"13", (*table).classes100K},
	{"14", (*table).classes1M},
	{"15", (*table).patterns},
	{"16", (*table).shares},
	{"11", (*table).pipelines},
	{"12", (*table).nested},
	{"M6", (*table).m6},
	{"v1", (*table).abstract},
	{"17", (*table).unequalReplicas},
	{"18", (*table).unequalStages},
}

// What the paper does not say.
const (
	pictures = 32 // a GPU: that of the original's example of a split classifier
	texts    = 4  // a GPU
	staged   = 20 // texts of a micro-batch of a pipeline: those of the original's example, which 32 GB have room for
	micro    = 10 // micro-batches: those of the original's example
	// accumulated are the micro-batches of a GPU in figure 17, where shares are by speed: enough for shares that are about right.
	accumulated = 20
)

// The ways to run a model.
const (
	overlapped = ""
	// after: gradients are merged when all of them are there.
	after = "communication.max_splits=1"
	// colocated: devices compute features of a part of the batch, and logits of a part of the classes.
	colocated = "cluster.colocate_split_and_replicate=true"
	// recomputed: of a layer only its input is kept for the backward part.
	recomputed = "gradient_checkpoint.type=collection"
)

func pipelined(micro int) string { return fmt.Sprintf("pipeline.num_micro_batch=%d", micro) }

func gpipe(micro int) string {
	return pipelined(micro) + " pipeline.strategy=PreferForward " + recomputed
}

// compute finds the speed of convolutions at which one trains on so many samples in a second.
func (t *table) compute(n network, samples float64) (float64, error) {
	return calibrate(0.1, 10, samples, func(speed float64) (float64, error) {
		return t.throughput(job{n, 1, overlapped}, hardware{profile: "V100-32", speed: speed, between: 1})
	})
}

// network finds the bandwidth between hosts at which a job has a throughput, that of one GPU times so much.
func (t *table) network(j job, speed, times float64) (hardware, error) {
	h := hardware{profile: "V100-32", speed: speed}
	one, err := t.throughput(job{j.network, 1, overlapped}, h)
	if err != nil {
		return h, err
	}
	h.between, err = calibrate(1e8, 2e10, times*one, func(bandwidth float64) (float64, error) {
		h.between = bandwidth
		return t.throughput(j, h)
	})
	return h, err
}

// resnetSpeed is what figure 13 says of one GPU.
func (t *table) resnetSpeed() (float64, error) {
	speed, err := t.compute(resnet(100_000, pictures, whole, 1), 319)
	t.note("ResNet50, batch %d: convolutions are %.2f times as fast as the profile V100-32 says, so that one GPU trains the model of 100,000 classes on 319 samples a second.", pictures, speed)
	return speed, err
}

// speedUps adds rows of throughputs over that of one GPU.
func (t *table) speedUps(what string, one network, h hardware, jobs []job, published ...float64) error {
	base, err := t.throughput(job{one, 1, overlapped}, h)
	if err != nil {
		return err
	}
	for i, j := range jobs {
		got, err := t.throughput(j, h)
		if err != nil {
			return err
		}
		t.add(what, j.gpus, published[i], got/base)
	}
	return nil
}

// onEach is a model on different numbers of GPUs.
func onEach(n network, settings string, gpus ...int) (jobs []job) {
	for _, k := range gpus {
		jobs = append(jobs, job{n, k, settings})
	}
	return jobs
}

// dataParallel adds the rows of figures 9 and 10.
func (t *table) dataParallel(n network, h hardware, tf, whale []float64) error {
	if err := t.speedUps("TF data parallel", n, h, onEach(n, after, 8, 16, 32), tf...); err != nil {
		return err
	}
	return t.speedUps("Whale data parallel", n, h, onEach(n, overlapped, 8, 16, 32), whale...)
}

// resnet50 is what ResNet50 runs on.
func (t *table) resnet50() (network, hardware, error) {
	n := resnet(1000, pictures, whole, 1)
	speed, err := t.resnetSpeed()
	if err != nil {
		return n, hardware{}, err
	}
	h, err := t.network(job{n, 16, after}, speed, 12.14)
	t.given("9", "TF data parallel", 16)
	t.note("ResNet50: %.2f GB/s between hosts, by TF on 16 GPUs in figure 9.", h.between/1e9)
	return n, h, err
}

func (t *table) resnetData() error {
	n, h, err := t.resnet50()
	if err != nil {
		return err
	}
	return t.dataParallel(n, h, []float64{7.50, 12.14, 22.31}, []float64{7.73, 13.29, 25.29})
}

// bert is what BERT-large runs on.
func (t *table) bert() (network, hardware, error) {
	n := bertLarge.staged(texts, 1)
	h, err := t.network(job{n, 16, overlapped}, 1, 8.72)
	t.given("10", "Whale data parallel", 16)
	t.given("10", "TF data parallel", 8)
	t.note("BERT-large, batch %d of %d words: GPUs as the profile says, since only speed-ups are published; %.2f GB/s between hosts, by Whale on 16 GPUs in figure 10.", texts, bertLarge.length, h.between/1e9)
	return n, h, err
}

func (t *table) bertData() error {
	n, h, err := t.bert()
	if err != nil {
		return err
	}
	return t.dataParallel(n, h, []float64{5.80, 5.78, 9.15}, []float64{7.26, 8.72, 14.06})
}

// wide is what a model of 100,000 classes runs on.
func (t *table) wide() (hardware, error) {
	speed, err := t.resnetSpeed()
	if err != nil {
		return hardware{}, err
	}
	h, err := t.network(job{resnet(100_000, pictures, whole, 1), 16, overlapped}, speed, 2844./319)
	t.note("100,000 classes and more: %.2f GB/s between hosts, by data parallelism on 16 GPUs in figure 13.", h.between/1e9)
	return h, err
}

// split is a job with a split head, on all GPUs.
func split(classes, gpus int, h head) job {
	return job{resnet(classes, pictures*gpus, h, gpus), gpus, colocated}
}

// samples adds a row of a throughput.
func (t *table) samples(what string, j job, h hardware, published float64) error {
	got, err := t.throughput(j, h)
	t.add(what, j.gpus, published, got)
	return err
}

func (t *table) classes100K() error {
	h, err := t.wide()
	if err != nil {
		return err
	}
	n := resnet(100_000, pictures, whole, 1)
	const data = "100K classes, data parallel, samples/s"
	t.given("13", data, 1)
	t.given("13", data, 16)
	for i, gpus := range []int{1, 8, 16, 32} {
		if err := t.samples(data, job{n, gpus, overlapped}, h, []float64{319, 2246, 2844, 3611}[i]); err != nil {
			return err
		}
	}
	for i, gpus := range []int{8, 16, 32} {
		if err := t.samples("100K classes, replicate + split, samples/s", split(100_000, gpus, byColumn), h, []float64{2547, 4729, 8789}[i]); err != nil {
			return err
		}
	}
	last := t.rows[len(t.rows)-1].predicted
	over, err := t.throughput(job{n, 32, overlapped}, h)
	t.ratio("100K classes, replicate + split over data parallel", 32, 2.43, last/over)
	return err
}

func (t *table) classes1M() error {
	h, err := t.wide()
	if err != nil {
		return err
	}
	for i, gpus := range []int{8, 16, 32} {
		if err := t.samples("1M classes, replicate + split, samples/s", split(1_000_000, gpus, byColumn), h, []float64{1730, 3398, 6577}[i]); err != nil {
			return err
		}
	}
	r, err := t.plan(job{resnet(1_000_000, pictures, whole, 1), 8, overlapped}, h)
	if err != nil {
		return err
	}
	t.note("1M classes, data parallel: out of memory as published; a GPU would need %.1f GiB of 32.", float64(r.Account.Peak())/(1<<30))
	return nil
}

func (t *table) patterns() error {
	h, err := t.wide()
	if err != nil {
		return err
	}
	for i, gpus := range []int{8, 16, 32} {
		if err := t.samples("1M classes, split by column, samples/s", split(1_000_000, gpus, byColumn), h, []float64{1730, 3399, 6578}[i]); err != nil {
			return err
		}
		if err := t.samples("1M classes, both inputs split, samples/s", split(1_000_000, gpus, byRow), h, []float64{1067, 1673, 1754}[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) shares() error {
	h, err := t.wide()
	if err != nil {
		return err
	}
	for i, gpus := range []int{8, 16, 32} {
		for _, x := range []struct {
			what      string
			j         job
			published float64
		}{
			{"100K classes, data parallel, communication", job{resnet(100_000, pictures, whole, 1), gpus, overlapped}, []float64{.119, .442, .646}[i]},
			{"100K classes, replicate + split, communication", split(100_000, gpus, byColumn), []float64{.067, .079, .099}[i]},
		} {
			s, err := t.run(x.j, h)
			if err != nil {
				return err
			}
			t.add(x.what, gpus, x.published, s.Exposed())
		}
	}
	return nil
}

func (t *table) pipelines() error {
	n, h, err := t.bert()
	if err != nil {
		return err
	}
	t.note("11 and 12: a micro-batch is %d texts, as in the original's example. Speed-ups are over one GPU with batch %d, as in figure 10.", staged, texts)
	for i, stages := range []int{4, 8} {
		m := bertLarge.staged(staged, stages)
		if err := t.speedUps("GPipe, a stage a GPU", n, h, onEach(m, gpipe(micro), stages), []float64{2.48, 4.40}[i]); err != nil {
			return err
		}
		if err := t.speedUps("Whale pipeline, a stage a GPU", n, h, onEach(m, pipelined(micro), stages), []float64{3.63, 5.00}[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) nested() error {
	n, h, err := t.bert()
	if err != nil {
		return err
	}
	for i, stages := range []int{2, 4, 8} {
		published := [][]float64{{6.60, 12.50, 23.00}, {7.26, 12.00, 23.30}, {5.00, 9.90, 18.60}}[i]
		m := bertLarge.staged(staged, stages)
		if err := t.speedUps(fmt.Sprintf("%d stages, data parallel", stages), n, h, onEach(m, pipelined(micro), 8, 16, 32), published...); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) m6() error {
	_, h, err := t.bert()
	if err != nil {
		return err
	}
	m := transformer{layers: 48, width: 4096, length: 512, vocabulary: 50_000}
	few, err := t.throughput(job{m.staged(texts, 8), 64, pipelined(35) + " " + recomputed}, h)
	if err != nil {
		return err
	}
	many, err := t.throughput(job{m.staged(texts, 8), 256, pipelined(35) + " " + recomputed}, h)
	t.note("M6-10B: a stand-in of 48 equal layers of width %d, batch %d of %d words; the cluster is BERT-large's.", m.width, texts, m.length)
	t.ratio("M6-10B, 8 stages, 35 micro-batches, recompute: scaling 8 to 32 hosts", 256, 0.91, many/few/4)
	return err
}

func (t *table) abstract() error {
	const slower = 35. / 50
	h, err := t.wide()
	if err != nil {
		return err
	}
	t.note("v1: 35 Gb/s between hosts, so that bandwidths are 35/50 of those above. Horovod is modelled as TF. 16 GB have no room for %d texts: a micro-batch of a pipeline has %d.", staged, texts)
	h.profile, h.between = "V100-16", h.between*slower
	throughputs := func(h hardware, jobs ...job) (list []float64, err error) {
		for _, j := range jobs {
			x, err := t.throughput(j, h)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		return list, nil
	}
	const published = 14.8
	horovod := job{resnet(100_000, pictures, whole, 1), 64, after}
	x, err := throughputs(h, split(100_000, 64, byColumn), horovod)
	if err != nil {
		return err
	}
	t.ratio("100K classes, replicate + split over Horovod", 64, published, x[0]/x[1])
	slow := h // what Horovod would have had
	if slow.between, err = calibrate(1e8, h.between, x[0]/published, func(bandwidth float64) (float64, error) {
		slow.between = bandwidth
		return t.throughput(horovod, slow)
	}); err != nil {
		return err
	}
	n, h, err := t.bert()
	if err != nil {
		return err
	}
	h.profile, h.between = "V100-16", h.between*slower
	x, err = throughputs(h, job{n, 64, after}, job{n, 64, overlapped}, job{bertLarge.staged(texts, 2), 64, pipelined(micro)})
	if err != nil {
		return err
	}
	t.ratio("BERT-large, data parallel over Horovod", 64, 1.736, x[1]/x[0])
	t.ratio("BERT-large, pipeline over data parallel", 64, 1.337, x[2]/x[1])
	t.ratio("BERT-large, pipeline over Horovod", 64, 2.32, x[2]/x[0])
	h.between = slow.between
	y, err := t.throughput(job{n, 64, after}, h)
	t.note("v1: %.1f times Horovod means that it had %.2f GB/s between hosts. So BERT-large in a pipeline would be %.2f times Horovod, where 2.32 is published.", published, slow.between/1e9, x[2]/y)
	return err
}

// bySpeed adds what a cluster gains of which half are P100s if the planner knows it.
func (t *table) bySpeed(what string, equal, dealt job, h hardware, published float64) error {
	h.mixed = "P100-16"
	before, err := t.throughput(equal, h)
	if err != nil {
		return err
	}
	h.known = true
	after, err := t.throughput(dealt, h)
	t.ratio(what, equal.gpus, published, after/before)
	return err
}

// replicas adds a row of data parallelism by speed. Shares are whole micro-batches, so that there have to be some.
func (t *table) replicas(what string, n network, h hardware, published float64) error {
	j := job{n, 16, pipelined(accumulated)}
	t.note("17: GPUs have %d micro-batches of a step if shares are equal.", accumulated)
	return t.bySpeed(what, j, j, h, published)
}

func (t *table) unequalReplicas() error {
	n, h, err := t.resnet50()
	if err != nil {
		return err
	}
	if err := t.replicas("V100s and P100s, ResNet50 data parallel, by speed over equal", n, h, 1.30); err != nil {
		return err
	}
	if n, h, err = t.bert(); err != nil {
		return err
	}
	return t.replicas("V100s and P100s, BERT-large data parallel, by speed over equal", n, h, 1.45)
}

// stages adds a row of a pipeline by speed. Each has GPUs of both kinds, since devices are dealt by their index in the host.
func (t *table) stages(what string, m transformer, h hardware, published float64) error {
	settings := pipelined(micro) + " cluster.device_place_prefer_intra_node=false"
	t.note("18: 4 V100s are in a host, and 4 P100s in another; a pipeline has two of each.")
	return t.bySpeed(what, job{m.staged(texts, 4), 8, settings}, job{m.plain(texts, 4), 8, settings}, h, published)
}

func (t *table) unequalStages() error {
	_, h, err := t.bert()
	if err != nil {
		return err
	}
	if err := t.stages("V100s and P100s, BERT-large in 4 stages, by speed over even", bertLarge, h, 1.23); err != nil {
		return err
	}
	t5 := transformer{layers: 48, width: 1024, length: 512, vocabulary: 32128}
	t.note("T5-large: a stand-in of 48 equal layers of width %d, batch %d of %d words; the cluster is BERT-large's.", t5.width, texts, t5.length)
	return t.stages("V100s and P100s, T5-large in 4 stages, by speed over even", t5, h, 1.23)
}
