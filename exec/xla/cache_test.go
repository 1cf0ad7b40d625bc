package xla

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWhatWasNotUsedForLongestLeavesAFullCache(t *testing.T) {
	folder := t.TempDir()
	c, err := NewCache(folder, 300) // each entry has 100 bytes and its checksum
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "b"} {
		if err := c.put(key, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(c.file(key), old, old); err != nil {
			t.Fatal(err)
		}
	}
	unfinished := filepath.Join(folder, "new-1")
	if err := os.WriteFile(unfinished, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(unfinished, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if c.get("a") == nil { // now b was not used for longest
		t.Fatal("an entry is gone before the cache is full")
	}
	if err := c.put("c", make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for key, stays := range map[string]bool{"a": true, "b": false, "c": true} {
		if got := c.get(key) != nil; got != stays {
			t.Errorf("%s is there: %v", key, got)
		}
	}
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("what a process left unfinished is still there")
	}
	if err := c.put("d", make([]byte, 1000)); err == nil {
		t.Error("an entry larger than the cache is no error")
	}
}
