"""TensorBoard's HTTP API as its first releases documented it, over our store: for the scripts people wrote then."""
