"""`leanops demo`: sample messages of six topics through the main job."""


def demo() -> None:
    """Land the sample messages and run the main job on them."""
