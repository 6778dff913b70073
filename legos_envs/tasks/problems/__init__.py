"""Problems with a checked answer."""
