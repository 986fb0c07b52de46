"""A requirement laid over this installation: environments that differ in one package only.

`install` makes a virtual environment that holds the requirement (and what of its dependencies does
not fit); everything else, savermark included, is seen through from the environment that runs us.
So two sides of a comparison differ in what was asked for and in nothing else, an environment takes
seconds and a few megabytes, and nothing is installed into the user's own.
"""

from savermark.installs.build import install
from savermark.installs.model import INSTALLED, Install
from savermark.installs.versions import newest_versions

__all__ = ["INSTALLED", "Install", "install", "newest_versions"]
