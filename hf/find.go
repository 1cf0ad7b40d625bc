// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// Find returns the folder of a model: the folder itself, or the one that "hf download" made for a name of the Hub. It downloads nothing.
//
//	folder, err := hf.Find("openai-community/gpt2")
func Find(model string) (folder string, err error) {
	if info, err := os.Stat(model); err == nil && info.IsDir() {
		return model, nil
	}
	if model == "" || strings.Count(model, "/") > 1 || strings.ContainsAny(model, `\`) || strings.HasPrefix(model, ".") || filepath.IsAbs(model) {
		return "", errors.Errorf("epl: there is no folder %q with a model; give a folder, or a name of the Hugging Face Hub such as openai-community/gpt2", model)
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	repo := filepath.Join(cache, "models--"+strings.ReplaceAll(model, "/", "--"))
	revision, err := os.ReadFile(filepath.Join(repo, "refs", "main"))
	if err == nil {
		folder = filepath.Join(repo, "snapshots", filepath.Base(strings.TrimSpace(string(revision))))
		_, err = os.Stat(folder)
	}
	if err != nil {
		return "", errors.Errorf("epl: %q is no folder, and no model of that name is in %s: run \"hf download %s\", or give a folder with its files", model, cache, model)
	}
	return folder, nil
}

// cacheFolder is where the Hub's programs keep models, by the variables that they read.
func cacheFolder() (string, error) {
	for _, v := range []struct {
		name  string
		below []string
	}{{"HF_HUB_CACHE", nil}, {"HF_HOME", []string{"hub"}}, {"XDG_CACHE_HOME", []string{"huggingface", "hub"}}} {
		if value := os.Getenv(v.name); value != "" {
			return filepath.Join(append([]string{value}, v.below...)...), nil
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.Wrap(err, "epl: the cache of models is in the home folder, unless HF_HOME is set")
	}
	return filepath.Join(home, ".cache", "huggingface", "hub"), nil
}
