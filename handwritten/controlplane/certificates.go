package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"magicstick.dev/operator/handwritten/controlplane/child"
)

// certificateLife is the validity of all certificates; they are made anew at each start.
const certificateLife = 365 * 24 * time.Hour

// keyPair is a certificate with its key, on disk and in memory.
type keyPair struct {
	certFile, keyFile string
	certPEM, keyPEM   []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certificates are all identities of one control plane.
type certificates struct {
	ca, apiServer, etcdServer, etcdClient, admin, controllerManager *keyPair

	serviceAccountKey string
}

// writeCertificates makes an authority and everything it signs. Only the key
// that signs ServiceAccount tokens is kept from an earlier start, so that
// tokens in a kept data folder stay valid.
func writeCertificates(dir string) (*certificates, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the certificate folder: %w", err)
	}
	now := time.Now()
	// nil as the authority: it signs itself.
	ca, err := issue(dir, "ca", nil, x509.Certificate{
		Subject: pkix.Name{CommonName: "magicstick-controlplane"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, now)
	if err != nil {
		return nil, err
	}
	certs := &certificates{ca: ca, serviceAccountKey: filepath.Join(dir, "service-account.key")}
	server := func(commonName string) x509.Certificate {
		return x509.Certificate{
			Subject:     pkix.Name{CommonName: commonName},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			DNSNames: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
		}
	}
	client := func(commonName string, groups ...string) x509.Certificate {
		return x509.Certificate{
			Subject:     pkix.Name{CommonName: commonName, Organization: groups},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	for _, request := range []struct {
		into     **keyPair
		name     string
		template x509.Certificate
	}{
		{&certs.apiServer, "apiserver", server("kube-apiserver")},
		{&certs.etcdServer, "etcd", server("etcd")},
		{&certs.etcdClient, "etcd-client", client("kube-apiserver-etcd-client")},
		{&certs.admin, "admin", client("magicstick-dev", "system:masters")},
		{&certs.controllerManager, "controller-manager", client("system:kube-controller-manager")},
	} {
		pair, err := issue(dir, request.name, ca, request.template, now)
		if err != nil {
			return nil, err
		}
		*request.into = pair
	}
	if _, err := os.Stat(certs.serviceAccountKey); errors.Is(err, fs.ErrNotExist) {
		key, err := newKey()
		if err != nil {
			return nil, err
		}
		keyPEM, err := encodeKey(key)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(certs.serviceAccountKey, keyPEM, 0o600); err != nil {
			return nil, fmt.Errorf("writing the key of ServiceAccount tokens: %w", err)
		}
	}
	return certs, nil
}

// issue makes a key, lets the authority sign its certificate, and stores both
// as <name>.crt and <name>.key.
func issue(dir, name string, authority *keyPair, template x509.Certificate, now time.Time) (*keyPair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making the certificate %s: %w", name, err)
	}
	template.SerialNumber = serial
	// A clock that was set back a little since must not make the certificate invalid.
	template.NotBefore = now.Add(-time.Hour)
	template.NotAfter = now.Add(certificateLife)
	parent, signer := &template, key
	if authority != nil {
		parent, signer = authority.cert, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back the certificate %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	pair := &keyPair{
		certFile: filepath.Join(dir, name+".crt"), keyFile: filepath.Join(dir, name+".key"),
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM: keyPEM,
		cert: cert, key: key,
	}
	for path, data := range map[string][]byte{pair.certFile: pair.certPEM, pair.keyFile: pair.keyPEM} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, fmt.Errorf("writing the certificate %s: %w", name, err)
		}
	}
	return pair, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// probe expects status 200 from url, over mutual TLS.
func probe(url string, ca, client *keyPair) child.Probe {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return child.HTTPProbe(url, &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{client.cert.Raw}, PrivateKey: client.key}},
		MinVersion:   tls.VersionTLS12,
	})
}

func adminConfig(server string, certs *certificates) *rest.Config {
	return &rest.Config{
		Host: server,
		// The API server has its own fairness; a second limit here would only
		// hide how fast the caller really is.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: certs.ca.certPEM, CertData: certs.admin.certPEM, KeyData: certs.admin.keyPEM,
		},
	}
}

func writeKubeconfig(path, server string, ca, client *keyPair) error {
	const name = "magicstick-dev"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca.certPEM}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: client.certPEM, ClientKeyData: client.keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig %s: %w", path, err)
	}
	return nil
}
