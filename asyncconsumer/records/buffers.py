"""The allocation of receive buffers in pure Python, for use without the compiled module."""


def room_for(size: int, /) -> bytearray:
    """Return a writable buffer of `size` bytes with undefined content."""
    return bytearray(size)
