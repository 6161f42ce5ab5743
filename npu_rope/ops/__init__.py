"""The operators: Python functions, schemas, fakes and gradients."""
