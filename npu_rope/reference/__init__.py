"""NumPy float64 references, one short file an operator, written to be read beside its specification."""
