"""Response formats: plain text, JSON mode, and JSON that a schema describes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from inference.server.texts import Name, Schema, Strict, Text


class TextFormat(Strict):
    """Plain text, the default. To choose among given texts, use `guided_choice`."""

    type: Literal["text"]


class JsonFormat(Strict):
    """JSON mode: the reply is one JSON object."""

    type: Literal["json_object"]

    @property
    def grammar(self) -> dict[str, Any]:
        """The schema that the reply follows."""
        return {"type": "object"}


class JsonSchema(Strict):
    """A named JSON schema. The reply follows it whether it is `strict` or not."""

    name: Name
    description: Text | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """The reply is JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: JsonSchema

    @property
    def grammar(self) -> dict[str, Any]:
        """The schema that the reply follows."""
        return self.json_schema.schema_


ResponseFormat = Annotated[TextFormat | JsonFormat | JsonSchemaFormat, Field(discriminator="type")]
