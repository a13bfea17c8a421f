"""The cases of the coordinator contract, by topic."""
