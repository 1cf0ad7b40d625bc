// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

// authority makes an authority and one certificate of it, as PEM files.
func authority(t *testing.T) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	caTemplate := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, caTemplate, caTemplate, &caKey.PublicKey, caKey)
	must(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "worker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, caTemplate, &leafKey.PublicKey, caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(err)
	return write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER), write("ca.pem", "CERTIFICATE", caDER)
}

func loadTLS(t *testing.T) *tls.Config {
	t.Helper()
	config, err := LoadTLS(authority(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestTLSNeedsAuthorityAndToken(t *testing.T) {
	ours, theirs := loadTLS(t), loadTLS(t)
	token := testSecurity.Token
	for _, c := range []struct {
		name   string
		dialer Security
		want   string // in the dialer's error
	}{
		{"both", Security{token, ours}, ""},
		{"another authority", Security{token, theirs}, "TLS"},
		{"no TLS", Security{token, nil}, ""}, // any error
		{"another token", Security{"guess", ours}, "another token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			logged := jobtest.NewJournal()
			l := listen(t, Security{token, ours}, logged.Logf)
			conns := accepted(l)
			d, err := Dial(t.Context(), "tcp", l.Addr().String(), "x", c.dialer, "1.0")
			if c.name == "both" {
				if err != nil {
					t.Fatal(err)
				}
				accepted := <-conns
				go d.Write([]byte("secret"))
				got := make([]byte, 6)
				if _, err := io.ReadFull(accepted, got); err != nil || string(got) != "secret" {
					t.Errorf("%q, %v", got, err)
				}
				if state := d.Conn.(*tls.Conn).ConnectionState(); state.Version != tls.VersionTLS13 {
					t.Errorf("TLS %x", state.Version)
				}
				d.Close()
				accepted.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			logged.WaitFor(t, "refused")
		})
	}
}

// Someone with a certificate of the authority, but without the token, relays both sides of the handshake.
func TestNobodySitsBetweenTwoTLSSessions(t *testing.T) {
	config := loadTLS(t)
	s := Security{testSecurity.Token, config}
	a, b := net.Pipe()
	c, d := net.Pipe()
	go func() {
		toDialer, toListener := tls.Server(b, config), tls.Client(c, config)
		go func() {
			io.Copy(toDialer, toListener)
			toDialer.Close()
		}()
		io.Copy(toListener, toDialer)
		toListener.Close()
	}()
	_, _, derr, lerr := shakeHands(a, d, "x", s, s, "1", "1")
	if derr == nil || lerr == nil {
		t.Error("the relay was not noticed")
	}
	for _, conn := range []net.Conn{a, b, c, d} {
		conn.Close()
	}
}

func TestCertificatesThatCannotBeUsedAreErrors(t *testing.T) {
	cert, key, ca := authority(t)
	otherCert, otherKey, otherCA := authority(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, cert, key, ca, want string }{
		{"no certificate", "/nowhere/cert.pem", key, ca, "/nowhere/cert.pem"},
		{"no key", cert, "/nowhere/key.pem", ca, "/nowhere/key.pem"},
		{"no authority", cert, key, "/nowhere/ca.pem", "/nowhere/ca.pem"},
		{"another key", cert, otherKey, ca, "belong together"},
		{"an empty authority", cert, key, empty, "there is no certificate in"},
		{"another authority", cert, key, otherCA, "is not one of the authority"},
		{"another certificate", otherCert, otherKey, ca, "is not one of the authority"},
	} {
		if _, err := LoadTLS(c.cert, c.key, c.ca); err == nil || !strings.HasPrefix(err.Error(), "epl: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTokensAreLongAndDiffer(t *testing.T) {
	a, b := NewToken(), NewToken()
	if len(a) != 64 || a == b {
		t.Errorf("%q, %q", a, b)
	}
}
