package rendezvous

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate makes a certificate that is its own authority, as PEM files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	secretDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secretDER)
}

func TestAJobCanBeEncrypted(t *testing.T) {
	noLeak(t)
	cert, key := certificate(t)
	j, found, err := FromEnvironment(func(name string) (string, bool) {
		value, ok := map[string]string{
			EnvURL: "tcp://127.0.0.1:1", EnvToken: testSecurity.Token, EnvTLSCert: cert, EnvTLSKey: key, EnvTLSCA: cert,
		}[name]
		return value, ok
	})
	if err != nil || !found {
		t.Fatal(found, err)
	}
	s, err := NewServer("127.0.0.1:0", ServerOptions{Workers: 2, Security: j.Security})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plain := jobAt(s, 1, 2)
	plain.Timeout = time.Second
	_, err = Join(within(t), plain)
	wantError(t, err, "worker 1 found no rendezvous")
	jobs := []Options{jobAt(s, 0, 2), jobAt(s, 1, 2)}
	jobs[0].Security, jobs[1].Security = j.Security, j.Security
	members, errs := joinAll(within(t), jobs)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range onAll(members, func(m *Member) error {
		conn, err := m.Connect(within(t), 1-m.Index(), "data")
		if err != nil {
			return err
		}
		if _, encrypted := conn.(*tls.Conn); !encrypted {
			t.Errorf("the connection is a %T", conn)
		}
		return conn.Close()
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	leaveAll(t, members)
}
