"""A real one-node Kubernetes as plain processes of this machine, without registry, virtual machine or Docker.

Decided here: which upstream programs judge the driver (Kubernetes 1.37.2, etcd 3.7.3, containerd 2.4.2, compiled from
their published Go modules, with Debian's runc), how they are started so that they run next to each other on one
machine, and how everything they leave behind is found and removed again.

* `programs` compiles, once per content of the Go module files;
* `apiserver` is etcd and kube-apiserver alone, ready in seconds: enough for everything that only reads and writes
  objects;
* `node` adds controller-manager, scheduler, containerd and kubelet;
* `python -m tests.cluster build|up|down` is the same for a shell.

Nothing in here knows the driver under test.
"""
