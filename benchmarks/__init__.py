"""Measurements, printed as ratios to a peer measured in the same run; figures are kept in docs/performance.md."""
