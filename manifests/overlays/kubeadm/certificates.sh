#!/bin/sh
# Makes the certificates of service and kube-scheduler, which know each other by an authority of their own.
#   manifests/overlays/kubeadm/certificates.sh DIRECTORY [DAYS]
# An authority that is already there issues new ones: that is how they are renewed. Keep ca.key away from the cluster.
set -eu
umask 077

directory=${1:?name the directory to put the certificates in}
days=${2:-365}
# What the service calls itself: tlsConfig.serverName in control-plane/scheduler-extender.yaml. It need not resolve.
server=kube-scheduler-extender.kube-scheduler-extender.svc
# Who may call: server.tls.allowedSubjects in extender-configuration.yaml.
client=kube-scheduler

key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
mkdir -p "$directory"
cd "$directory"

if [ ! -e ca.key ]; then
    openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj "/CN=kube-scheduler-extender-ca" \
        -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign
fi

# issue FILE NAME PURPOSE
issue() {
    openssl req $key -keyout "$1.key" -subj "/CN=$2" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -days "$days" -out "$1.crt" -extfile /dev/fd/3 3<<-EXTENSIONS
		basicConstraints = critical, CA:FALSE
		keyUsage = critical, digitalSignature
		extendedKeyUsage = $3
		subjectAltName = DNS:$2
		subjectKeyIdentifier = hash
		authorityKeyIdentifier = keyid
		EXTENSIONS
}
issue tls "$server" serverAuth
issue client "$client" clientAuth
openssl verify -CAfile ca.crt tls.crt client.crt
