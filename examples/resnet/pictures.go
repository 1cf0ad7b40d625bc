package main

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

// pictures are the images to learn from and to be judged by. They are files, of one image each, in folders named after
// their class; those that are generated have only the name of a file.
type pictures struct {
	train, val []string
	classes    []string
	size       int // height and width, once read
	// pixels returns an image of size×size pixels, of three colours around 0. Where random is nil it is always the same.
	pixels func(path string, size int, random *rand.Rand) ([]float32, error)
}

// reader reads the image of a file, with its class. For training it varies the image.
func (p *pictures) reader(training bool) data.Reader {
	return func(path string, random *rand.Rand) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			if !training {
				random = nil
			}
			pixels, err := p.pixels(path, p.size, random)
			if err != nil {
				yield(data.Sample{}, err)
				return
			}
			class := slices.Index(p.classes, filepath.Base(filepath.Dir(path)))
			yield(data.Sample{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(pixels, p.size, p.size, 3)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]int64{int64(class)}, 1)},
			}, nil)
		}
	}
}

// fromFolder finds images in the usual layout: folder/train/CLASS/*.jpg, folder/val/CLASS/*.jpg.
func fromFolder(folder string, size int) (*pictures, error) {
	p := &pictures{size: size, pixels: fromFile}
	for set, files := range map[string]*[]string{"train": &p.train, "val": &p.val} {
		classes, err := os.ReadDir(filepath.Join(folder, set))
		if err != nil {
			return nil, fmt.Errorf("resnet: images are expected in %s, in a folder for each class: %w", filepath.Join(folder, set), err)
		}
		for _, class := range classes {
			if !class.IsDir() {
				continue
			}
			images, err := os.ReadDir(filepath.Join(folder, set, class.Name()))
			if err != nil {
				return nil, err
			}
			for _, image := range images {
				if isImage(image.Name()) {
					*files = append(*files, filepath.Join(folder, set, class.Name(), image.Name()))
				}
			}
			if set == "train" {
				p.classes = append(p.classes, class.Name())
			}
		}
		if len(*files) == 0 {
			return nil, fmt.Errorf("resnet: there is no .jpg, .jpeg or .png file in the folders of %s", filepath.Join(folder, set))
		}
	}
	for _, path := range p.val {
		if class := filepath.Base(filepath.Dir(path)); !slices.Contains(p.classes, class) {
			return nil, fmt.Errorf("resnet: %s is of the class %q, for which there is no folder in %s", path, class, filepath.Join(folder, "train"))
		}
	}
	return p, nil
}

func isImage(name string) bool {
	return slices.Contains([]string{".jpg", ".jpeg", ".png"}, strings.ToLower(filepath.Ext(name)))
}
