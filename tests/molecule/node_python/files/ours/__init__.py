"""A package of the project, as the role puts it beside the wheels."""

import msgspec

DECODED = msgspec.json.decode(b"[1, 2]")
