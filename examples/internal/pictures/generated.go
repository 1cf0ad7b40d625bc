// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
)

// MaxGenerated is how many classes of generated images can be told apart.
const MaxGenerated = 48

// Generated makes images up, so that there is something to learn without data. A class is a pattern of waves: how many
// there are across and down, and in which colour. Where they begin differs from image to image, and there is noise.
func Generated(train, val, classes, size int) *Set {
	s := &Set{size: size, pixels: generate}
	for c := range classes {
		s.Classes = append(s.Classes, strconv.Itoa(c))
	}
	for i := range train {
		s.Train = append(s.Train, fmt.Sprintf("generated/train/%d/%d.png", i%classes, i))
	}
	for i := range val {
		s.Val = append(s.Val, fmt.Sprintf("generated/val/%d/%d.png", i%classes, i))
	}
	return s
}

// generate makes the image of a path, always the same one, and for training mirrors it half of the time.
func generate(path string, size int, random *rand.Rand) ([]float32, error) {
	class, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	if err != nil {
		return nil, err
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(path))
	own := rand.New(rand.NewPCG(hash.Sum64(), 0))
	across, down, colour := 1+class%4, 1+class/4%4, class/16
	x0, y0 := own.Float64(), own.Float64()
	mirror := random != nil && random.IntN(2) == 0

	wave := func(count int, at float64) float64 { return math.Cos(2 * math.Pi * (float64(count) * at)) }
	pixels := make([]float32, 0, size*size*3)
	for y := range size {
		rows := wave(down, float64(y)/float64(size)+y0)
		for x := range size {
			if mirror {
				x = size - 1 - x
			}
			value := rows * wave(across, float64(x)/float64(size)+x0)
			for c := range 3 {
				strength := 1.0
				if c != colour {
					strength = 0.5
				}
				pixels = append(pixels, float32(strength*value+own.NormFloat64()))
			}
		}
	}
	return pixels, nil
}
