// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/easyparallel/epl/internal/near"
)

// profiles are those that EPL comes with.
//
//go:embed profiles/*.json
var profiles embed.FS

// This is the name of the profile that "epl calibrate" writes: of the machine that the program runs on.
const This = "this"

// EnvProfiles names a folder of profiles, in place of the user's.
const EnvProfiles = "EPL_PROFILES"

// profileFile is the form of a profile's file.
type profileFile struct {
	Name      string          `json:"name"`
	Source    string          `json:"source,omitempty"`
	Memory    bytesText       `json:"memory,omitempty"`
	Bandwidth speedText       `json:"bandwidth"`
	Launch    timeText        `json:"launch,omitempty"`
	Segment   timeText        `json:"segment,omitempty"`
	Tile      []int64         `json:"tile,omitempty"`
	Fuses     bool            `json:"fuses,omitempty"`
	Cores     int             `json:"cores,omitempty"`
	Rates     map[string]Rate `json:"rates"`
	Within    *Link           `json:"within,omitempty"`
	Inside    *Link           `json:"inside,omitempty"`
	Between   *Link           `json:"between,omitempty"`
	// Teams have neither name nor memory nor links.
	Teams map[int]*profileFile `json:"teams,omitempty"`
}

// linkFile is the form of a link in a file.
type linkFile struct {
	Latency   timeText  `json:"latency"`
	Bandwidth speedText `json:"bandwidth"`
	Shared    bool      `json:"shared,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (l Link) MarshalJSON() ([]byte, error) {
	return json.Marshal(linkFile{timeText(l.Latency), speedText(l.Bandwidth), l.Shared})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Link) UnmarshalJSON(text []byte) error {
	var f linkFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	if f.Bandwidth == 0 {
		return errors.New("a link has no bandwidth; write it, such as 12.5GB/s")
	}
	*l = Link{time.Duration(f.Latency), float64(f.Bandwidth), f.Shared}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (p *Profile) MarshalJSON() ([]byte, error) {
	return json.Marshal(p.file())
}

func (p *Profile) file() *profileFile {
	f := &profileFile{p.Name, p.Source, bytesText(p.Memory), speedText(p.Bandwidth), timeText(p.Launch), timeText(p.Segment), nil, p.Fuses, p.Cores, p.Rates,
		p.Within, p.Inside, p.Between, nil}
	if p.Tile != [2]int64{} {
		f.Tile = p.Tile[:]
	}
	for n, c := range p.Teams {
		if f.Teams == nil {
			f.Teams = map[int]*profileFile{}
		}
		f.Teams[n] = &profileFile{Bandwidth: speedText(c.Bandwidth), Launch: timeText(c.Launch), Segment: timeText(c.Segment), Rates: c.Rates}
	}
	return f
}

// ParseProfile reads a profile: JSON or YAML, see docs/profiles.md.
func ParseProfile(text []byte) (*Profile, error) {
	var f profileFile
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	if f.Name == "" {
		return nil, errors.New("it has no name; write one")
	}
	return f.profile()
}

// profile checks what a file says.
func (f *profileFile) profile() (*Profile, error) {
	if f.Bandwidth == 0 {
		return nil, errors.New("it has no bandwidth of memory; write it, such as 900GB/s")
	}
	if f.Cores < 0 {
		return nil, errors.Errorf("it has %d cores; write how many the devices of a host share, or nothing", f.Cores)
	}
	if f.Tile != nil && (len(f.Tile) != 2 || slices.Min(f.Tile) < 1) {
		return nil, errors.Errorf("its tile is %v; write rows and columns, such as [12, 32]", f.Tile)
	}
	for key := range f.Rates {
		if family, _, _ := strings.Cut(key, "/"); !slices.Contains(Families, family) {
			return nil, errors.Errorf("rates of %q: there is no such family of ops; use %s", key, strings.Join(Families, ", "))
		}
	}
	if f.Rates[Dot] == nil && f.Rates[Dot+"/float32"] == nil {
		return nil, errors.New("it has no rate of matrix products; write rates with dot/float32")
	}
	p := &Profile{Name: f.Name, Source: f.Source, Memory: int64(f.Memory), Bandwidth: float64(f.Bandwidth), Launch: time.Duration(f.Launch),
		Segment: time.Duration(f.Segment), Fuses: f.Fuses, Cores: f.Cores, Rates: f.Rates, Within: f.Within, Inside: f.Inside, Between: f.Between}
	copy(p.Tile[:], f.Tile)
	for n, c := range f.Teams {
		q, err := c.profile()
		if n < 2 || err != nil {
			return nil, errors.Errorf("team of %d cores: there have to be at least 2, with numbers of their own: %v", n, err)
		}
		if p.Teams == nil {
			p.Teams = map[int]*Profile{}
		}
		q.Name, q.Memory, q.Tile, q.Fuses, q.Cores = p.Name, p.Memory, p.Tile, p.Fuses, p.Cores
		p.Teams[n] = q
	}
	return p, nil
}

// Folder is where a user's profiles are: what EPL_PROFILES says, or the folder epl/profiles in the user's configuration.
func Folder() (string, error) {
	if dir := os.Getenv(EnvProfiles); dir != "" {
		return dir, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errors.Wrapf(err, "epl: there is no folder for profiles; set %s", EnvProfiles)
	}
	return filepath.Join(dir, "epl", "profiles"), nil
}

// Find returns a profile: the file of that name, if it has an ending, else the user's of that name (see [Folder]), else EPL's own.
func Find(name string) (*Profile, error) {
	read := func(file string, text []byte, err error) (*Profile, error) {
		if err != nil {
			return nil, errors.Wrap(err, "epl: profile")
		}
		p, err := ParseProfile(text)
		return p, errors.WithMessagef(err, "epl: profile %s", file)
	}
	if ending := filepath.Ext(name); ending == ".json" || ending == ".yaml" {
		text, err := os.ReadFile(name)
		return read(name, text, err)
	}
	if dir, err := Folder(); err == nil {
		file := filepath.Join(dir, name+".json")
		if text, err := os.ReadFile(file); !errors.Is(err, os.ErrNotExist) {
			return read(file, text, err)
		}
	}
	if text, err := profiles.ReadFile("profiles/" + name + ".json"); err == nil {
		return read(name, text, nil)
	}
	if name == This {
		return nil, errors.New(`epl: this machine has no profile yet: "epl calibrate" measures one, in less than a minute`)
	}
	known, meant := Names(), ""
	if close := near.Closest(name, known); close != "" {
		meant = "; did you mean " + close + "?"
	}
	return nil, errors.Errorf("epl: there is no profile %q%s Known are %s. docs/profiles.md says how to add one", name, strings.TrimSuffix(meant, "?")+".",
		strings.Join(known, ", "))
}

// Names are those of all profiles that [Find] knows, in order.
func Names() (all []string) {
	add := func(files []os.DirEntry, _ error) {
		for _, f := range files {
			if name, ok := strings.CutSuffix(f.Name(), ".json"); ok {
				all = append(all, name)
			}
		}
	}
	add(profiles.ReadDir("profiles"))
	if dir, err := Folder(); err == nil {
		add(os.ReadDir(dir))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
