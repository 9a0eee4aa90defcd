"""Plans for questions: the language that all stages share. The public names are those of `revelator.plans`."""

from revelator.plans import *  # noqa: F403
from revelator.plans import __all__ as __all__
