"""Who answers for a seat: models, endpoints, code."""
