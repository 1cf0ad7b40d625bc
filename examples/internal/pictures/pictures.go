// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package pictures has the images of the examples, from a folder or generated, as files for data.FromFiles.
package pictures

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/data"
)

// Set is the images to learn from and to be judged by. They are files, of one image each, in folders named after their
// class; those that are generated have only the name of a file.
type Set struct {
	Train, Val []string
	Classes    []string
	size       int // height and width, once read
	// pixels returns an image of size×size pixels, of three colours around 0. Where random is nil it is always the same.
	pixels func(path string, size int, random *rand.Rand) ([]float32, error)
}

// Reader reads the image of a file, with the index of its class. For training it varies the image.
func (s *Set) Reader(training bool) data.Reader {
	return func(path string, random *rand.Rand) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			if !training {
				random = nil
			}
			pixels, err := s.pixels(path, s.size, random)
			if err != nil {
				yield(data.Sample{}, err)
				return
			}
			class := slices.Index(s.Classes, filepath.Base(filepath.Dir(path)))
			yield(data.Sample{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(pixels, s.size, s.size, 3)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]int64{int64(class)}, 1)},
			}, nil)
		}
	}
}

// FromFolder finds images in the usual layout: folder/train/CLASS/*.jpg, folder/val/CLASS/*.jpg.
func FromFolder(folder string, size int) (*Set, error) {
	s, err := ForTraining(folder, size)
	if err != nil {
		return nil, err
	}
	if s.Val, _, err = list(filepath.Join(folder, "val")); err != nil {
		return nil, err
	}
	for _, path := range s.Val {
		if class := filepath.Base(filepath.Dir(path)); !slices.Contains(s.Classes, class) {
			return nil, fmt.Errorf("%s is of the class %q, for which there is no folder in %s", path, class, filepath.Join(folder, "train"))
		}
	}
	return s, nil
}

// ForTraining finds those to learn from alone, in folder/train/CLASS/*.jpg.
func ForTraining(folder string, size int) (*Set, error) {
	files, classes, err := list(filepath.Join(folder, "train"))
	if err != nil {
		return nil, err
	}
	return &Set{Train: files, Classes: classes, size: size, pixels: fromFile}, nil
}

// list returns the images in the folders of a folder, and the names of those: the classes.
func list(folder string) (files, classes []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("images are expected in %s, in a folder for each class: %w", folder, err)
	}
	for _, class := range entries {
		if !class.IsDir() {
			continue
		}
		images, err := os.ReadDir(filepath.Join(folder, class.Name()))
		if err != nil {
			return nil, nil, err
		}
		for _, image := range images {
			if isImage(image.Name()) {
				files = append(files, filepath.Join(folder, class.Name(), image.Name()))
			}
		}
		classes = append(classes, class.Name())
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("there is no .jpg, .jpeg or .png file in the folders of %s", folder)
	}
	return files, classes, nil
}

func isImage(name string) bool {
	return slices.Contains([]string{".jpg", ".jpeg", ".png"}, strings.ToLower(filepath.Ext(name)))
}
