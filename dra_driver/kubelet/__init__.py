"""The kubelet's edge: how a DRA driver registers, answers prepare and unprepare calls, and reports device health.

Decided here: sockets and their names, which API versions are served, what one claim's failure looks like on the wire,
how a driver starts, stops and survives a kubelet restart. Must not know: GPUs, claims beyond their identity, the API
server. Whoever prepares claims implements ``dra_service.ClaimPreparer``; whoever watches devices implements
``health.HealthSource``; ``server.PluginServer`` joins them with the kubelet, once per driver name, any number in a
process.

Sources: k8s.io/kubelet/pkg/apis/{pluginregistration,dra,dra-health,podresources}, pkg/kubelet/{pluginmanager,cm/dra}
of Kubernetes 1.34 to 1.37, KEP-4381 (structured parameters), KEP-4680 (health).
"""
