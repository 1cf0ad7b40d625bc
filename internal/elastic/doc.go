// Package elastic has no code, but tests that kill workers of real elastic jobs at random moments, and check that the jobs go on, and end
// with the weights of a run that nobody has disturbed. The long version:
//
//	go test ./internal/elastic -run KillLoop -v -timeout 1h -elastic.kills 100
package elastic
