// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"os"

	"github.com/pkg/errors"
)

// Security is what the workers of a job share, and nobody else has.
type Security struct {
	// Token is the job's secret. It must not be empty.
	Token string
	// TLS encrypts the connections, if it is not nil. It serves both ends: see [LoadTLS].
	TLS *tls.Config
}

// NewToken makes the token of a new job: 32 random bytes as text.
func NewToken() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (s Security) check() error {
	if s.Token == "" {
		return errors.New("epl: the job has no token, so nobody can tell its workers from strangers; " +
			"start it with epl-launch, or give all workers the same EPL_TOKEN")
	}
	return nil
}

// LoadTLS reads a certificate, its key and the authority that signed it from PEM files. The same configuration serves
// both ends, and both must have a certificate of that authority. It need not name a host: workers know each other by
// the token, and the handshake is bound to the TLS session.
func LoadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, errors.Errorf("epl: cannot read the TLS certificate %q with the key %q: %v; expected two PEM files that belong together",
			certFile, keyFile, err)
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, errors.Errorf("epl: cannot read the TLS authority %q: %v; expected a PEM file", caFile, err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, errors.Errorf("epl: there is no certificate in the TLS authority %q; expected a PEM file", caFile)
	}
	config := &tls.Config{
		Certificates:           []tls.Certificate{cert},
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		// The usual verification is about host names and differs by role; this one is not, and runs on both ends.
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state.PeerCertificates, authority)
		},
	}
	if err := verify([]*x509.Certificate{cert.Leaf}, authority); err != nil && len(cert.Certificate) == 1 {
		return nil, errors.Errorf("epl: the TLS certificate %q is not one of the authority %q: %v", certFile, caFile, err)
	}
	return config, nil
}

// verify checks that the chain leads to the authority.
func verify(chain []*x509.Certificate, authority *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the other side has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}
