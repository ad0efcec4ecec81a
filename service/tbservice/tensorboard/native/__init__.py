"""The data routes that every page asks for, answered without TensorBoard's handlers: the same answers, sooner.

Each handler gets the request's `Source` and the request, as werkzeug reads it for the stock handlers too.
"""
