// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"image"
	_ "image/gif"  // formats that Images reads
	_ "image/jpeg" // the same
	_ "image/png"  // the same
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/data"
)

// Image is one of a folder: its picture and class.
type Image struct {
	File    string
	Picture image.Image
	Class   int // its place among the classes, in the order of names
}

// Images are those of a folder with one folder for each class: FOLDER/CLASS/NAME.jpg, .jpeg, .png or .gif.
type Images struct {
	// Classes are the names of the classes, in order.
	Classes []string

	files []string
	class []int
	make  func(Image, *rand.Rand) (data.Sample, error)
}

// OpenImages lists the images of a folder. make makes a sample of one; what it does at random it must take from random, and it may be called at the same time. All samples must have the same shapes.
//
//	images, err := source.OpenImages("train", func(i source.Image, random *rand.Rand) (data.Sample, error) {
//		return data.Sample{Inputs: []*tensors.Tensor{scaled(i.Picture, 224, random)}, Labels: []*tensors.Tensor{tensors.FromValue([]int32{int32(i.Class)})}}, nil
//	})
func OpenImages(folder string, make func(i Image, random *rand.Rand) (data.Sample, error)) (*Images, error) {
	if make == nil {
		return nil, errors.New("epl: there is no function that makes samples of images")
	}
	x := &Images{make: make}
	classes, err := os.ReadDir(folder) // sorted
	if err != nil {
		return nil, errors.Wrap(err, "epl: images")
	}
	for _, c := range classes {
		if info, err := os.Stat(filepath.Join(folder, c.Name())); err != nil || !info.IsDir() { // also through a link
			continue
		}
		files, err := os.ReadDir(filepath.Join(folder, c.Name()))
		if err != nil {
			return nil, errors.Wrap(err, "epl: images")
		}
		found := false
		for _, f := range files {
			if slices.Contains([]string{".jpg", ".jpeg", ".png", ".gif"}, strings.ToLower(filepath.Ext(f.Name()))) && !f.IsDir() {
				x.files, x.class = append(x.files, filepath.Join(folder, c.Name(), f.Name())), append(x.class, len(x.Classes))
				found = true
			}
		}
		if !found {
			return nil, errors.Errorf("epl: %s has no image: .jpg, .jpeg, .png or .gif; remove the folder, since it would be a class", filepath.Join(folder, c.Name()))
		}
		x.Classes = append(x.Classes, c.Name())
	}
	if len(x.files) == 0 {
		return nil, errors.Errorf("epl: %s has no images in folders, one for each class", folder)
	}
	return x, nil
}

// Len implements data.Index.
func (x *Images) Len() int { return len(x.files) }

// Sample implements data.Index.
func (x *Images) Sample(i int, random *rand.Rand) (data.Sample, error) {
	if i < 0 || i >= len(x.files) {
		return data.Sample{}, errors.Errorf("epl: there is no image %d of %d", i, len(x.files))
	}
	f, err := os.Open(x.files[i])
	if err != nil {
		return data.Sample{}, errors.Wrap(err, "epl: images")
	}
	defer f.Close()
	r := &countedFile{f: f}
	picture, _, err := image.Decode(r)
	if err != nil {
		return data.Sample{}, errors.Wrapf(err, "epl: %s: byte %d, or before: the image cannot be read", x.files[i], r.at)
	}
	s, err := x.make(Image{x.files[i], picture, x.class[i]}, random)
	return s, errors.WithMessagef(err, "epl: %s", x.files[i])
}

// countedFile knows how far a file was read.
type countedFile struct {
	f  *os.File
	at int64
}

// Read implements io.Reader.
func (c *countedFile) Read(b []byte) (int, error) {
	n, err := c.f.Read(b)
	c.at += int64(n)
	return n, err
}
