"""Messages of the kubelet's wire contracts, generated from ``proto/`` by ``make proto``; never edited."""
