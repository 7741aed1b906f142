"""Process operators: declaration, shipping and execution of a user's class."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.process.declared import declare as declare
    from milepost.operators.process.declared import takes_value as takes_value
    from milepost.operators.process.run import ProcessFunction as ProcessFunction
    from milepost.operators.process.spec import ProcessOperator as ProcessOperator
    from milepost.operators.process.user_code import UserCodeFailed as UserCodeFailed
    from milepost.operators.process.user_code import UserFunction as UserFunction
    from milepost.operators.process.user_code import read_function as read_function
else:
    __getattr__, __dir__ = lazy_exports(__name__)
