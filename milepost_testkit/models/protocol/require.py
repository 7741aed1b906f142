"""What a model says when something does not hold."""


def require(holds: object, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
