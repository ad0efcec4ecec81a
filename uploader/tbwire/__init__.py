"""What uploader and service say to each other: the wire's messages, TensorBoard's messages, packed tensors."""
