"""The operators: schema, fake, gradient and Python entry of each, one file an operator."""
