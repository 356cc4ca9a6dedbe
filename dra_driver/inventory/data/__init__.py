"""Data files of the described inventory: ``models.json`` (GPU models) and ``machines.json`` (where GPUs sit)."""
