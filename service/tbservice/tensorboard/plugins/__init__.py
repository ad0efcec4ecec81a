"""TensorBoard's plugins where ours differ: HParams, projector, Markdown, regular expressions."""
