"""The operators, one file for each: its Python functions, schemas, fake and gradient."""
