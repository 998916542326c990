package controlplane

import (
	"fmt"
	"net"
	"strconv"
)

// serviceRange is the range of ClusterIPs; nothing routes it.
const serviceRange = "10.0.0.0/24"

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func etcdArguments(dataDir, clientURL, peerURL string, certs *certificates, volatile bool) []string {
	args := []string{
		"--name=default",
		"--data-dir=" + dataDir,
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=default=" + peerURL,
		"--cert-file=" + certs.etcdServer.certFile,
		"--key-file=" + certs.etcdServer.keyFile,
		"--trusted-ca-file=" + certs.ca.certFile,
		"--client-cert-auth=true",
		"--peer-cert-file=" + certs.etcdServer.certFile,
		"--peer-key-file=" + certs.etcdServer.keyFile,
		"--peer-trusted-ca-file=" + certs.ca.certFile,
		"--peer-client-cert-auth=true",
		// We hold the port with a bound socket until Stop, see reservePort.
		"--socket-reuse-port=true",
		"--auto-compaction-retention=5m",
		"--logger=zap",
		"--log-level=warn",
	}
	if volatile {
		// The folder is removed with the process: nothing is lost that should survive a power cut.
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiServerArguments(port int, etcdURL string, certs *certificates, controllerManager bool) []string {
	args := []string{
		"--bind-address=127.0.0.1",
		// Given, so that a machine without a default route starts too.
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--permit-port-sharing=true",
		"--etcd-servers=" + etcdURL,
		"--etcd-cafile=" + certs.ca.certFile,
		"--etcd-certfile=" + certs.etcdClient.certFile,
		"--etcd-keyfile=" + certs.etcdClient.keyFile,
		"--client-ca-file=" + certs.ca.certFile,
		"--tls-cert-file=" + certs.apiServer.certFile,
		"--tls-private-key-file=" + certs.apiServer.keyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + certs.serviceAccountKey,
		"--service-account-signing-key-file=" + certs.serviceAccountKey,
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		// Nothing reaches the API server through the Service `kubernetes`, and a
		// loopback address is not allowed in its endpoints.
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	}
	if !controllerManager {
		// Nobody makes the ServiceAccount that this plug-in asks for.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func controllerManagerArguments(port int, kubeconfig string, certs *certificates) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + certs.apiServer.certFile,
		"--tls-private-key-file=" + certs.apiServer.keyFile,
		"--client-ca-file=" + certs.ca.certFile,
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--root-ca-file=" + certs.ca.certFile,
		"--service-account-private-key-file=" + certs.serviceAccountKey,
		"--use-service-account-credentials=true",
		// There is one instance; a lease would only delay its start after a restart.
		"--leader-elect=false",
		"--profiling=false",
	}
}
