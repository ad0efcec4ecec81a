"""Callbacks of Keras, Lightning and Hugging Face that upload what their TensorBoard writers write.

Each module imports its framework, and nothing else does: `tbupload.integrations.keras`,
`tbupload.integrations.lightning`, `tbupload.integrations.transformers`.
"""
