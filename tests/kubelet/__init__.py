"""The kubelet's edge: in process against gRPC clients, and against the kubelet's own code."""
