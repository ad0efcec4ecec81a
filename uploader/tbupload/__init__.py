"""The client: reads event files where a training job writes them, and sends what is new to a tbhub server.

In a training script:

    import tbupload

    with tbupload.follow("runs/", name="a first try") as upload:
        print(upload.url)
        train("runs/")

Everywhere else, the command `tbupload`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbupload.background import Result
    from tbupload.following import Following, follow

__all__ = ["Following", "Result", "follow"]


def __getattr__(name: str) -> Any:
    """What scripts use, loaded when it is used: the command needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'tbupload' has no attribute {name!r}")
    from tbupload import background, following  # noqa: PLC0415 - see above

    return getattr(background if name == "Result" else following, name)
