"""Tests of the Kubernetes values and objects; those against Kubernetes' own code are marked integration."""
