"""The assertion of the protocol models."""


def require(holds: object, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
