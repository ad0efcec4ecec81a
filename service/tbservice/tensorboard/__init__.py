"""The stock TensorBoard page over our store: the mount, the bridge, the data provider, the native routes."""
