"""Master and workers: one run on several processes and machines."""
