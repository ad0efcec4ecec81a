"""Pictures and sound for the demo: PNG by Pillow, WAV by the standard library."""

from __future__ import annotations

import io
import wave
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from tbservice.local.demo.network import Array

Colors = npt.NDArray[np.uint8]

SOUND_RATE: Final = 8_000
"""Samples a second."""

_LOW, _MIDDLE, _HIGH = (
    np.array([33, 102, 172.0]),
    np.array([247, 247, 247.0]),
    np.array([178, 24, 43.0]),
)


def color(values: Array) -> Colors:
    """Blue for 0, white for a half, red for 1; a last axis of three is added."""
    scaled = np.clip(values, 0, 1)[..., None] * 2
    below: Array = _LOW + (_MIDDLE - _LOW) * np.minimum(scaled, 1)
    mixed: Array = below + (_HIGH - _MIDDLE) * np.maximum(scaled - 1, 0)
    return mixed.astype(np.uint8)


def encode_png(values: Array, side: int) -> bytes:
    """A square picture of `side` pixels of a matrix of numbers in [0, 1]."""
    buffer = io.BytesIO()
    Image.fromarray(color(values)).resize((side, side), Image.Resampling.NEAREST).save(
        buffer, "PNG"
    )
    return buffer.getvalue()


def encode_sound(pitches: Array, seconds: float) -> bytes:
    """A mono WAV whose pitch follows `pitches`, in hertz, spread evenly over its length."""
    count = int(SOUND_RATE * seconds)
    hertz = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(pitches)), pitches)
    samples = 0.4 * np.sin(2 * np.pi * np.cumsum(hertz) / SOUND_RATE)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SOUND_RATE)
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return buffer.getvalue()
