// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// DefaultPort is where the page is, unless told otherwise, or another program has the port.
const DefaultPort = 29880

const (
	// mostReaders is how many browsers may look at the same time.
	mostReaders = 32
	// slow is how long a browser may take for what it is told; then it is disconnected.
	slow = 10 * time.Second
	// quiet is how long a browser that waits is told nothing: it would not notice that the server is gone.
	quiet = 15 * time.Second
	// goodbye is how long browsers may take for the last that they are told.
	goodbye = time.Second
)

// Options of a server.
type Options struct {
	// Address is HOST:PORT to listen at. "": [DefaultPort] of this machine only, or any port if that is taken. Where others can reach it, a token is needed.
	Address string
	// Title names what is trained.
	Title string
	// Logs: what workers print is known, and shown.
	Logs bool
}

// Server shows a job. It takes events from any goroutine. A nil one takes nothing.
type Server struct {
	store    *store
	listener net.Listener
	http     *http.Server
	token    string // "": none is needed
	port     string
	slots    chan struct{}
	patience time.Duration // slow, but for tests
	readers  sync.WaitGroup
	leave    chan struct{} // closed when browsers are to be told no more
	close    func()
}

// New begins to serve.
//
//	s, err := dashboard.New(dashboard.Options{Title: "train"})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer s.Close()
//	fmt.Println(s.URL())
func New(o Options) (*Server, error) {
	l, err := listen(o.Address)
	if err != nil {
		return nil, err
	}
	address := l.Addr().(*net.TCPAddr)
	s := &Server{store: newStore(o.Title, o.Logs, secret()[:8]), listener: l, port: strconv.Itoa(address.Port), slots: make(chan struct{}, mostReaders), patience: slow, leave: make(chan struct{})}
	if !address.IP.IsLoopback() {
		s.token = secret()
	}
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: slow, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	s.close = sync.OnceFunc(s.end)
	go s.http.Serve(l) //nolint:errcheck // it ends with Close
	return s, nil
}

// listen finds the address.
func listen(address string) (net.Listener, error) {
	if address != "" {
		if err := CheckAddress(address); err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Errorf("epl: the dashboard cannot listen at %s: %v; choose another port, or leave the address out", address, err)
		}
		return l, nil
	}
	var l net.Listener
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, port := range []int{DefaultPort, 0} { // a port that is taken is not shared by the other host: localhost would be either
			if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
				return l, nil
			}
		}
	}
	return nil, errors.Errorf("epl: the dashboard cannot listen on this machine: %v", err)
}

// CheckAddress refuses what is no HOST:PORT, or :PORT.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 && port != "0" || strings.ContainsAny(host, "/ ") {
		return errors.Errorf("epl: the dashboard cannot listen at %q: write HOST:PORT, such as 127.0.0.1:%d, or :%d for all networks of this machine", address, DefaultPort, DefaultPort)
	}
	return nil
}

// secret is a random text.
func secret() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// URL is where the page is. It has the token, if one is needed: print it once, for the user only.
func (s *Server) URL() string {
	address := s.listener.Addr().(*net.TCPAddr)
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	u := "http://" + net.JoinHostPort(host, s.port) + "/"
	if s.token != "" {
		u += "?token=" + s.token
	}
	return u
}

// Put shows an event. It does not wait for browsers.
func (s *Server) Put(e Event) {
	if s == nil || e.check() != nil {
		return
	}
	s.store.put(&e)
}

// Close tells browsers that the job has ended, and returns when nothing of the server is left.
func (s *Server) Close() {
	if s != nil {
		s.close()
	}
}

func (s *Server) end() {
	s.store.close()
	close(s.leave)
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.readers.Wait()
}

// Handler answers browsers. It is part of what [New] serves.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /data.json", s.data)
	mux.HandleFunc("GET /plan", s.plan)
	return s.guard(mux)
}

// guard lets in who may look. Pages of other origins may not, also if they are shown to somebody who may: neither by asking this server from there, nor by giving
// a name of theirs the address of this machine.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if why := s.refuses(q); why != "" {
			http.Error(w, "epl: "+why, http.StatusForbidden)
			return
		}
		if s.token == "" {
			next.ServeHTTP(w, q)
			return
		}
		if given := q.URL.Query().Get("token"); given != "" && q.URL.Path == "/" && s.is(given) {
			// Off the address, which is in the history and on the screen.
			http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
			http.Redirect(w, q, "/", http.StatusSeeOther)
			return
		}
		bearer, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		if cookie, err := q.Cookie(s.cookie()); err == nil && s.is(cookie.Value) || s.is(bearer) {
			next.ServeHTTP(w, q)
			return
		}
		http.Error(w, "epl: this dashboard needs its token: open the address that was printed when it started", http.StatusForbidden)
	})
}

// cookie is its name. Cookies are for all ports of a host, so that each server has one of its own.
func (s *Server) cookie() string { return "epl-dashboard-" + s.port }

// is compares a token, in a time that tells nothing of it.
func (s *Server) is(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
}

// refuses says why a request is not answered, whoever asks; "": it is.
func (s *Server) refuses(q *http.Request) string {
	if site := q.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		if q.Header.Get("Sec-Fetch-Mode") != "navigate" || q.Header.Get("Sec-Fetch-Dest") != "document" {
			return "pages of other origins may not read this dashboard"
		}
	}
	if origin := q.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "http" || u.Host != q.Host {
			return "pages of other origins may not read this dashboard"
		}
	}
	if s.token != "" {
		return ""
	}
	host := q.Host
	if h, _, err := net.SplitHostPort(q.Host); err == nil {
		host = h
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Sprintf("this dashboard is for its own machine: open %s", s.URL())
	}
	return ""
}

// events streams updates: see https://html.spec.whatwg.org/multipage/server-sent-events.html.
func (s *Server) events(w http.ResponseWriter, q *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		http.Error(w, fmt.Sprintf("epl: %d browsers look at this dashboard: close one", mostReaders), http.StatusServiceUnavailable)
		return
	}
	s.readers.Add(1)
	defer s.readers.Done()
	defer s.store.reader()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	to := http.NewResponseController(w)
	tell := func(text []byte) bool {
		_ = to.SetWriteDeadline(time.Now().Add(s.patience)) // if it cannot, nobody is slow: a test
		if _, err := w.Write(text); err != nil {
			return false
		}
		return to.Flush() == nil
	}
	for id, alive := q.Header.Get("Last-Event-ID"), time.NewTicker(quiet); ; {
		text, newID, newer, over := s.store.since(id)
		if id = newID; len(text) > 0 && !tell(text) || over {
			alive.Stop()
			return
		}
		select {
		case <-newer:
		case <-s.leave:
		case <-alive.C:
			if !tell([]byte(": still here\n\n")) {
				alive.Stop()
				return
			}
		case <-q.Context().Done():
			alive.Stop()
			return
		}
	}
}

// data is all that is known, for programs.
func (s *Server) data(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.store.snapshot())
}

// plan is the page of the plan. It comes from a worker: no script of it runs, and it is of no origin.
func (s *Server) plan(w http.ResponseWriter, _ *http.Request) {
	s.store.mu.Lock()
	page := s.store.page
	s.store.mu.Unlock()
	if page == "" {
		http.Error(w, "epl: there is no plan yet, or it is too large to be shown: epl plan --html draws it", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox")
	_, _ = io.WriteString(w, page)
}
