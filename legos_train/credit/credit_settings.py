"""The choice of credit method, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from legos_train.credit.assigner import CreditAssigner
from legos_train.credit.methods import METHODS, declared_options, make_credit, options_of
from legos_train.credit.return_scale import ReturnScale
from legos_train.settings import Section, settings_with

if TYPE_CHECKING:
    CreditName = str
else:
    CreditName = Literal[tuple(sorted(METHODS))]


class CreditChoice(Section):
    """Who gets credit for an outcome."""

    name: CreditName = "same_prompt"
    """The credit method; the docs have a page for each."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Methods for individual roles, instead of `name`: a table `[credit.roles]` with lines like `proposer = "rae"`."""
    return_scale: Literal["running", "none"] = "running"
    """Divide advantages by the running standard deviation of the returns of their environment and role, where that is
    above 1. Methods whose advantages do not grow with the returns are left alone."""

    @property
    def names(self) -> set[str]:
        """The methods of all roles."""
        return {self.name, *self.roles.values()}

    def options(self, name: str | None = None) -> dict[str, Any]:
        """The settings that the method `name` (by default `self.name`) takes; ValueError for an unknown name."""
        return {option: getattr(self, option) for option in options_of(name or self.name) if hasattr(self, option)}

    def make(self, name: str | None = None) -> CreditAssigner:
        """A new assigner; `name`, such as an env's own credit method, takes the place of `self.name`.

        Raises:
            ValueError: the name is unknown, or a value is out of range.
        """
        credit = make_credit(name or self.name, **self.options(name))
        scaled = self.return_scale == "running" and not getattr(credit, "scale_free", False)
        return ReturnScale(credit) if scaled else credit


if TYPE_CHECKING:

    class CreditSettings(CreditChoice):
        """`CreditChoice`, and a setting for each option of a method."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, option: str) -> Any: ...

else:
    CreditSettings = settings_with(CreditChoice, "CreditSettings", declared_options())
