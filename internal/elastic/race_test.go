//go:build race

package elastic

// slowly is how many times as long workers may take to end and to start.
const slowly = 5
