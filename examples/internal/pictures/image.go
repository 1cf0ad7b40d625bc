// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"image"
	"image/draw"
	_ "image/jpeg" // for image.Decode
	_ "image/png"
	"math/rand/v2"
	"os"
)

// The mean and the deviation of each colour over ImageNet, by which its networks scale their input.
var (
	colourMean      = [3]float32{0.485, 0.456, 0.406}
	colourDeviation = [3]float32{0.229, 0.224, 0.225}
)

// fromFile reads an image: the square in its middle, or for training a random one, mirrored half of the time.
func fromFile(path string, size int, random *rand.Rand) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoded, _, err := image.Decode(f)
	if err != nil {
		return nil, err
	}
	pixels := image.NewRGBA(image.Rectangle{Max: decoded.Bounds().Size()})
	draw.Draw(pixels, pixels.Rect, decoded, decoded.Bounds().Min, draw.Src)
	square, mirror := crop(pixels.Rect.Size(), random)
	return scaled(pixels, square, size, mirror), nil
}

// crop chooses a square of 7/8 of the shorter side: 224 of 256.
func crop(of image.Point, random *rand.Rand) (square image.Rectangle, mirror bool) {
	side := max(min(of.X, of.Y)*7/8, 1)
	at := image.Pt((of.X-side)/2, (of.Y-side)/2)
	if random != nil {
		at = image.Pt(random.IntN(of.X-side+1), random.IntN(of.Y-side+1))
		mirror = random.IntN(2) == 0
	}
	return image.Rectangle{Min: at, Max: at.Add(image.Pt(side, side))}, mirror
}

// scaled brings a square to size×size pixels. A pixel is the mean of those that it covers, or the one below it.
func scaled(from *image.RGBA, square image.Rectangle, size int, mirror bool) []float32 {
	side := square.Dx()
	to := make([]float32, 0, size*size*3)
	for y := range size {
		y0, y1 := y*side/size, max((y+1)*side/size, y*side/size+1)
		for x := range size {
			if mirror {
				x = size - 1 - x
			}
			x0, x1 := x*side/size, max((x+1)*side/size, x*side/size+1)
			var sum [3]int
			for sy := y0; sy < y1; sy++ {
				row := from.Pix[from.PixOffset(square.Min.X+x0, square.Min.Y+sy):]
				for i := range x1 - x0 {
					sum[0] += int(row[4*i])
					sum[1] += int(row[4*i+1])
					sum[2] += int(row[4*i+2])
				}
			}
			for c := range sum {
				colour := float32(sum[c]) / float32(255*(y1-y0)*(x1-x0))
				to = append(to, (colour-colourMean[c])/colourDeviation[c])
			}
		}
	}
	return to
}
