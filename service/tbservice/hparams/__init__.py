"""HParams: sessions, their groups and columns, by the rules of TensorBoard's api.proto."""
