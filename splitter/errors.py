"""What the splitters raise for their users. The package stands alone, so it has its own."""


class SplitterError(ValueError):
    """A setting that no text can be split with."""
