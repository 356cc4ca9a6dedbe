"""The API server edge: how the driver reads, watches and writes Kubernetes objects.

Decided here: credentials and TLS (``kubeconfig``), one HTTP client with Kubernetes' own verbs on raw JSON
(``client``), a local copy kept current by list and watch (``reflector``), and the three things a node does with it:
publish its ResourceSlices (``publish``), read claims (``claims``) and record Events (``events``).

Nothing here knows about GPUs or about the kubelet. aiohttp's, PyYAML's and the ``kubernetes`` package's exceptions end
here; callers see ``dra_driver.errors`` and ``dra_driver.kube.errors`` only.
"""
