// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

func get(t *testing.T, client *http.Client, url string, header ...string) (status int, body string, h http.Header) {
	t.Helper()
	q, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			q.Host = header[i+1]
		} else {
			q.Header.Set(header[i], header[i+1])
		}
	}
	answer, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

// A server for its own machine answers pages of its own origin only, by names of the machine only.
func TestOtherOriginsAndNamesAreRefused(t *testing.T) {
	s := started(t, Options{Title: "train"})
	url, client := s.URL(), &http.Client{}
	if strings.Contains(url, "token") {
		t.Error("a server for this machine needs no token:", url)
	}
	own := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	for _, c := range []struct {
		want    int
		headers []string
	}{
		{200, nil},
		{200, []string{"Origin", "http://" + own}},
		{200, []string{"Host", "localhost:" + s.port}},
		{200, []string{"Host", "[::1]:" + s.port}},
		{200, []string{"Sec-Fetch-Site", "same-origin"}},
		{200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}}, // a link
		{403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}},
		{403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}},
		{403, []string{"Origin", "http://evil.example"}},
		{403, []string{"Origin", "https://" + own}},
		{403, []string{"Origin", "null"}},
		{403, []string{"Host", "evil.example:" + s.port}}, // a name that leads here
		{403, []string{"Host", "192.0.2.1:" + s.port}},
	} {
		for _, path := range []string{"", "data.json"} {
			if status, body, _ := get(t, client, url+path, c.headers...); status != c.want {
				t.Errorf("%q %q: %d, want %d: %s", path, c.headers, status, c.want, body)
			}
		}
	}
	answer, err := client.Post(url, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Error("POST:", answer.Status)
	}
	_, body, h := get(t, client, url)
	if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "script-src 'sha256-") || !strings.Contains(csp, "connect-src 'self'") {
		t.Error(csp)
	}
	if strings.Contains(body, "http://") && !strings.Contains(body, "http://www.w3.org/2000/svg") || strings.Contains(body, "https://") || strings.Contains(body, "src=") {
		t.Error("the page needs something from outside")
	}
	if h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
		t.Error(h)
	}
}

// Where others can reach the server, only who has the token may look; the page's address does not keep it.
func TestOthersNeedTheToken(t *testing.T) {
	s := started(t, Options{Title: "train", Address: ":0"})
	at := "http://127.0.0.1:" + s.port + "/"
	_, token, found := strings.Cut(s.URL(), "?token=")
	if !found || len(token) < 32 {
		t.Fatal("its address has no token: ", s.URL())
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, path := range []string{"", "events", "data.json", "plan", "?token=", "?token=" + strings.Repeat("0", 32), "?token=" + token[:31], "events?token=" + token} {
		if status, body, _ := get(t, client, at+path); status != http.StatusForbidden || strings.Contains(body, token) {
			t.Errorf("%q without a token: %d", path, status)
		}
	}
	status, _, h := get(t, client, at+"?token="+token)
	cookie := h.Get("Set-Cookie")
	if status != http.StatusSeeOther || h.Get("Location") != "/" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		t.Fatal(status, h)
	}
	pair, _, _ := strings.Cut(cookie, ";")
	for _, path := range []string{"", "data.json"} {
		if status, _, _ := get(t, client, at+path, "Cookie", pair); status != http.StatusOK {
			t.Errorf("%q with the cookie: %d", path, status)
		}
		if status, _, _ := get(t, client, at+path, "Authorization", "Bearer "+token); status != http.StatusOK {
			t.Errorf("%q with the token: %d", path, status)
		}
		if status, _, _ := get(t, client, at+path, "Cookie", pair+"0"); status != http.StatusForbidden {
			t.Errorf("%q with another cookie: %d", path, status)
		}
		if status, _, _ := get(t, client, at+path, "Cookie", pair, "Origin", "http://evil.example"); status != http.StatusForbidden {
			t.Errorf("%q of another origin with the cookie: %d", path, status)
		}
	}
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	for _, a := range []string{"8080", "localhost", "http://localhost:8080", "localhost:http", "localhost:99999", ":-1", "a b:80"} {
		if _, err := New(Options{Address: a}); err == nil || !strings.Contains(err.Error(), "write HOST:PORT") {
			t.Errorf("%q: %v", a, err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = New(Options{Address: taken.Addr().String()})
	jobtest.WantError(t, err, "in use", "choose another port")
	one, two := started(t, Options{}), started(t, Options{}) // both have a place
	if one.URL() == two.URL() {
		t.Error("two servers are at", one.URL())
	}
}

// A browser is told all, then what changes; after a break it goes on where it was, without a step twice, and from the beginning if that is too long ago.
func TestABrowserThatComesBackGoesOn(t *testing.T) {
	jobtest.NoLeak(t)
	s := started(t, Options{Title: "train", Logs: true})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.Put(numbered(1, 5))
	s.Put(Event{Log: "one"})
	x := listenTo(t, s, "")
	u, _ := x.next()
	if c := u.Curves["value/Loss"]; !u.Reset || len(c.Steps) != 1 || c.Means[0] != 5 || len(u.Lines[0]) != 1 || !u.Logs || u.Title != "train" {
		t.Fatalf("%+v", u)
	}
	s.Put(numbered(2, 4))
	s.store.flush()
	u, id := x.next()
	if u.Reset || len(u.Points) == 0 || u.Points[0].Step != 2 || len(u.Lines) > 0 {
		t.Fatalf("%+v", u)
	}
	y := listenTo(t, s, "") // another one, so that updates are kept
	y.next()
	x.answer.Body.Close()
	s.Put(numbered(3, 3))
	s.Put(Event{Log: "two"})
	s.store.flush()
	s.Put(numbered(4, 2))
	s.store.flush()
	x = listenTo(t, s, id)
	var steps []int64
	for len(steps) < 2 {
		u, id = x.next()
		if u.Reset {
			t.Fatal("it begins anew")
		}
		for _, p := range u.Points {
			if p.Name == "value/Loss" {
				steps = append(steps, p.Step)
			}
		}
	}
	if fmt.Sprint(steps) != "[3 4]" {
		t.Error("after a break it is told of steps", steps)
	}
	for n := range mostUpdates + 10 {
		s.Put(numbered(int64(5+n), 1))
		s.store.flush()
	}
	if len(s.store.updates) > mostUpdates {
		t.Error(len(s.store.updates), "updates are kept")
	}
	if u, _ := listenTo(t, s, id).next(); !u.Reset || len(u.Curves["value/Loss"].Steps) != 14+mostUpdates {
		t.Errorf("after a long break: %+v", u.Reset)
	}
	for _, stale := range []string{"00000000-3", "nonsense", s.store.epoch + "-999999", s.store.epoch + "-x"} {
		if u, _ := listenTo(t, s, stale).next(); !u.Reset {
			t.Errorf("%q is taken for an update of this server", stale)
		}
	}
}

// The end of the job ends streams, and leaves nothing behind.
func TestTheEndIsToldAndLeavesNothing(t *testing.T) {
	jobtest.NoLeak(t)
	s, err := New(Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	x := listenTo(t, s, "")
	x.next()
	done := make(chan struct{})
	go func() {
		s.Put(Event{Notice: &Notice{1, End, "all workers ended well"}})
		s.Close()
		s.Close()
		close(done)
	}()
	for {
		u, _ := x.next()
		if u.Ended {
			break
		}
	}
	<-done
	for x.lines.Scan() {
		if x.lines.Text() != "" {
			t.Error("the stream goes on:", x.lines.Text())
		}
	}
	s.Put(numbered(1, 1)) // is lost
	var none *Server
	none.Put(numbered(1, 1))
	none.Close()
	if _, err := net.DialTimeout("tcp", s.listener.Addr().String(), time.Second); err == nil {
		t.Error("it still listens")
	}
}

// A browser that reads nothing is disconnected, holds up nobody, and is told all when it comes back.
func TestASlowBrowserIsDisconnected(t *testing.T) {
	s := started(t, Options{})
	s.patience = 50 * time.Millisecond
	conn, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", s.listener.Addr())
	readers := func() int {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		return s.store.readers
	}
	within := time.Now().Add(jobtest.Limit)
	for readers() == 0 && time.Now().Before(within) {
		time.Sleep(time.Millisecond)
	}
	for n := int64(1); readers() > 0; n++ {
		for range mostAtOnce {
			s.Put(Event{Log: strings.Repeat("x", mostLine)})
		}
		s.Put(numbered(n, 1))
		s.store.flush()
		if time.Now().After(within) {
			t.Fatal("it is still there")
		}
	}
	if u, _ := listenTo(t, s, s.store.epoch+"-1").next(); !u.Reset {
		t.Error("it is not told all")
	}
}

func TestTooManyBrowsersAreRefused(t *testing.T) {
	s := started(t, Options{})
	for range mostReaders {
		listenTo(t, s, "").next()
	}
	if status, body, _ := get(t, &http.Client{}, s.URL()+"events"); status != http.StatusServiceUnavailable {
		t.Error(status, body)
	}
}

// Memory is bounded: curves of a training of weeks, lines, notices, and what a mad program sends.
func TestHistoryIsBounded(t *testing.T) {
	s := newStore("train", true, "x")
	const records = 100_000
	for n := range int64(records) {
		s.put(&Event{Step: &Step{Number: n, Time: n, Values: map[string]Number{"Loss": Number(n)}}})
	}
	s.flush()
	c := s.series["value/Loss"]
	if n := len(c.points); n >= mostPoints || n < mostPoints/3 {
		t.Errorf("%d points", n)
	}
	sum, n := 0.0, 0
	for i, p := range c.points {
		sum, n = sum+p.mean*float64(p.n), n+p.n
		if p.min > p.mean || p.mean > p.max || i > 0 && p.min <= c.points[i-1].max {
			t.Fatalf("point %d: %+v after %+v", i, p, c.points[max(i-1, 0)])
		}
	}
	if n != records || math.Abs(sum/records-(records-1)/2.0) > 1e-3*records {
		t.Errorf("%d records with a mean of %g", n, sum/records)
	}
	values, long := map[string]Number{}, strings.Repeat("x", 100_000)
	for i := range 1000 {
		values[long[:500]+fmt.Sprint(i)] = 1
		s.put(&Event{Log: long})
		s.put(&Event{Notice: &Notice{Text: long}})
	}
	s.put(&Event{Step: &Step{Number: records, Values: values}})
	for i := range 1000 {
		s.put(&Event{Step: &Step{Number: records + 1, Values: map[string]Number{fmt.Sprint(i): 1}}})
	}
	s.flush()
	if len(s.series) > mostSeries || len(s.lines[0]) > mostLines || len(s.notices) > mostNotices {
		t.Error(len(s.series), "curves,", len(s.lines[0]), "lines,", len(s.notices), "notices")
	}
	if n := len(s.snapshot()); n > 4<<20 {
		t.Errorf("all that is known is %d bytes", n)
	}
	for _, e := range []Event{{Worker: -1}, {Worker: 1 << 20}, {Workers: make([]Worker, mostWorkers+1)}, {Step: &Step{Devices: []Device{{Rank: -1}}}}, {Plan: &Plan{Devices: make([]PlanDevice, mostRanks+1)}}} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err == nil {
			t.Errorf("%.60s is taken", text)
		}
	}
}

// After a restart the steps since the checkpoint are there once: the later ones count.
func TestStepsThatAreTakenAgainReplaceTheFirst(t *testing.T) {
	var s series
	s.stride = 1
	for n := range int64(10) {
		s.add(n, n, 1)
	}
	for n := int64(6); n < 8; n++ {
		s.add(n, n+100, 2)
	}
	c := s.curve()
	if fmt.Sprint(c.Steps, c.Means) != "[0 1 2 3 4 5 6 7] [1 1 1 1 1 1 2 2]" {
		t.Error(c.Steps, c.Means)
	}
}

func TestNumbersThatAreNotFiniteTravel(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0.25, -3e-20, 1e300} {
		text, err := json.Marshal(Number(x))
		if err != nil {
			t.Fatal(err)
		}
		var got Number
		if err := json.Unmarshal(text, &got); err != nil || math.Float64bits(float64(got)) != math.Float64bits(x) && !(x != x && got != got) {
			t.Errorf("%g travels as %s, and is %g: %v", x, text, float64(got), err)
		}
	}
}

// The page of a plan comes from a worker: no script of it runs.
func TestThePageOfThePlanRunsNothing(t *testing.T) {
	s := started(t, Options{})
	if status, _, _ := get(t, &http.Client{}, s.URL()+"plan"); status != http.StatusNotFound {
		t.Error(status)
	}
	s.Put(Event{Plan: &Plan{Page: "<h1>plan</h1>", Summary: [][2]string{}}})
	status, body, h := get(t, &http.Client{}, s.URL()+"plan")
	if csp := h.Get("Content-Security-Policy"); status != 200 || body != "<h1>plan</h1>" || strings.Contains(csp, "script-src") || !strings.HasSuffix(csp, "sandbox") {
		t.Error(status, body, csp)
	}
	if _, body, _ := get(t, &http.Client{}, s.URL()+"data.json"); strings.Contains(body, "<h1>") || strings.Contains(body, "u003ch1") {
		t.Error("the page is streamed")
	}
}

// Where the usual port is taken, another port of the same host is used: the same port of ::1 would be mistaken for it.
func TestATakenPortIsNotUsedOfAnotherHost(t *testing.T) {
	if taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(DefaultPort))); err == nil {
		defer taken.Close()
	} // else somebody else has it, which is as good
	l, err := listen("")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a := l.Addr().(*net.TCPAddr); a.Port == DefaultPort || a.IP.To4() == nil {
		t.Errorf("it listens at %v", a)
	}
}
