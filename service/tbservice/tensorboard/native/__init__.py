"""Native handlers: the data routes that each page requests, with the stock responses but faster.

Each handler receives the request's `Source` and the request as werkzeug parses it.
"""
