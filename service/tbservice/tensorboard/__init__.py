"""The stock TensorBoard page over our store: mount, WSGI bridge, data provider, native routes."""
