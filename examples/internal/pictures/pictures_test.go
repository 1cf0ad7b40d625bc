// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/data"
)

// plain is an image of one colour, but for a white column at its left.
func plain(c color.Color, width, height int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, c)
		}
		m.Set(0, y, color.White)
	}
	return m
}

func writeImage(t *testing.T, path string, m image.Image) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if filepath.Ext(path) == ".png" {
		err = png.Encode(f, m)
	} else {
		err = jpeg.Encode(f, m, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// imageFolder makes a folder of red and blue images, with some files that are no images.
func imageFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for class, c := range map[string]color.Color{"red": color.NRGBA{200, 20, 20, 255}, "blue": color.NRGBA{20, 20, 200, 255}} {
		for _, name := range []string{"a.png", "b.jpg", "c.jpeg", "d.JPG", "e.png", "f.png"} {
			writeImage(t, filepath.Join(folder, "train", class, name), plain(c, 40, 48))
		}
		writeImage(t, filepath.Join(folder, "val", class, "a.png"), plain(c, 9, 7))
		for _, name := range []string{"notes.txt", ".hidden"} {
			if err := os.WriteFile(filepath.Join(folder, "train", class, name), []byte("no image"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "train", "README"), []byte("no class"), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestAFolderIsReadInTheUsualLayout(t *testing.T) {
	p, err := FromFolder(imageFolder(t), 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Train) != 12 || len(p.Val) != 2 || !slices.Equal(p.Classes, []string{"blue", "red"}) {
		t.Fatalf("%d and %d images of %v", len(p.Train), len(p.Val), p.Classes)
	}
	for _, path := range append(p.Train, p.Val...) {
		for s, err := range p.Reader(true)(path, rand.New(rand.NewPCG(1, 2))) {
			if err != nil {
				t.Fatal(err)
			}
			pixels := tensors.MustCopyFlatData[float32](s.Inputs[0])
			middle := pixels[3*(8*4+4):][:3]
			label := tensors.MustCopyFlatData[int64](s.Labels[0])[0]
			if brighter := middle[0] < middle[2]; brighter != (label == 0) {
				t.Errorf("%s has the label %d and the colour %v", path, label, middle)
			}
		}
	}
}

func TestAFolderThatCannotBeUsedIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, folder string)
		want   string
	}{
		"no folder": {func(t *testing.T, folder string) { remove(t, folder) }, "images are expected in "},
		"no val":    {func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "val")) }, "in a folder for each class: "},
		"no images": {func(t *testing.T, folder string) {
			remove(t, filepath.Join(folder, "val", "red"))
			remove(t, filepath.Join(folder, "val", "blue"))
		}, "there is no .jpg, .jpeg or .png file in the folders of "},
		"an unknown class": {func(t *testing.T, folder string) {
			writeImage(t, filepath.Join(folder, "val", "green", "x.png"), plain(color.Black, 4, 4))
		}, `x.png is of the class "green", for which there is no folder in `},
	} {
		t.Run(name, func(t *testing.T) {
			folder := imageFolder(t)
			c.change(t, folder)
			_, err := FromFolder(folder, 8)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestTrainingNeedsNoImagesForEvaluation(t *testing.T) {
	folder := imageFolder(t)
	remove(t, filepath.Join(folder, "val"))
	p, err := ForTraining(folder, 8)
	if err != nil || len(p.Train) != 12 || len(p.Val) != 0 {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestACorruptImageIsNamed(t *testing.T) {
	folder := imageFolder(t)
	for name, content := range map[string]string{"broken.jpg": "\xff\xd8\xff\xe0 cut off", "empty.png": ""} {
		path := filepath.Join(folder, "train", "red", name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := FromFolder(folder, 8)
		if err != nil {
			t.Fatal(err)
		}
		images, err := data.FromFiles("train", data.Slice{Files: p.Train}, p.Reader(true), data.FileOptions{Batch: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range images.Iter() {
			if err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), `epl: the dataset "train": reading `+path) {
			t.Errorf("got %v, want the name of %s", err, path)
		}
		remove(t, path)
	}
}

// near compares pixels with a colour of an image, from 0 to 255.
func near(pixel []float32, want [3]float32) bool {
	for c := range want {
		if math.Abs(float64(pixel[c]*colourDeviation[c]+colourMean[c]-want[c]/255)) > 1e-5 {
			return false
		}
	}
	return true
}

func TestImagesAreScaledByTheMeanOfTheirPixels(t *testing.T) {
	m := image.NewRGBA(image.Rect(0, 0, 4, 4))
	for i := range 16 {
		m.Set(i%4, i/4, color.RGBA{uint8(10 * i), 100, uint8(200 - i), 255})
	}
	half := scaled(m, m.Rect, 2, false)
	mirrored := scaled(m, m.Rect, 2, true)
	twice := scaled(m, image.Rect(1, 1, 3, 3), 4, false)
	for _, c := range []struct {
		name  string
		pixel []float32
		want  [3]float32
	}{
		{"the first of half the size", half[:3], [3]float32{25, 100, 197.5}},
		{"the last of half the size", half[9:], [3]float32{125, 100, 187.5}},
		{"the first of the mirrored", mirrored[:3], [3]float32{45, 100, 195.5}},
		{"the first of twice the size", twice[:3], [3]float32{50, 100, 195}},
		{"its neighbour", twice[3:6], [3]float32{50, 100, 195}},
		{"the last of twice the size", twice[45:], [3]float32{100, 100, 190}},
	} {
		if !near(c.pixel, c.want) {
			t.Errorf("%s is %v, not %v", c.name, c.pixel, c.want)
		}
	}
}

func TestCropsStayInsideTheImage(t *testing.T) {
	for _, size := range []image.Point{{1, 1}, {2, 9}, {300, 200}, {256, 256}} {
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 100 {
			if i == 0 {
				random = nil
			} else if random == nil {
				random = rand.New(rand.NewPCG(1, 2))
			}
			square, _ := crop(size, random)
			if square.Empty() || square.Dx() != square.Dy() || !square.In(image.Rectangle{Max: size}) {
				t.Fatalf("%v of %v", square, size)
			}
		}
	}
	if square, mirror := crop(image.Pt(256, 256), nil); square != image.Rect(16, 16, 240, 240) || mirror {
		t.Errorf("the middle is %v, mirrored: %t", square, mirror)
	}
}

func TestGeneratedImagesAreReproducible(t *testing.T) {
	p := Generated(20, 5, 7, 8)
	if len(p.Train) != 20 || len(p.Val) != 5 || len(p.Classes) != 7 {
		t.Fatalf("%d and %d images of %d classes", len(p.Train), len(p.Val), len(p.Classes))
	}
	get := func(path string, random *rand.Rand) []float32 {
		pixels, err := generate(path, 8, random)
		if err != nil || len(pixels) != 8*8*3 {
			t.Fatal(len(pixels), err)
		}
		return pixels
	}
	first := get(p.Train[3], nil)
	if !slices.Equal(first, get(p.Train[3], nil)) {
		t.Error("an image is not the same the second time")
	}
	if slices.Equal(first, get(p.Train[10], nil)) {
		t.Error("two images of a class are the same")
	}
	if slices.Equal(first, get(p.Val[3], nil)) {
		t.Error("images for evaluation are those for training")
	}
}
