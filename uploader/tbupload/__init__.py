"""The client: reads event files where a training job writes them, and sends what is new to a tbhub server.

In a training script:

    import tbupload

    with tbupload.follow("runs/", name="a first try") as upload:
        print(upload.url)
        train("runs/")

Everywhere else, the command `tbupload`.
"""

from tbupload.background import Result
from tbupload.following import Following, follow

__all__ = ["Following", "Result", "follow"]
