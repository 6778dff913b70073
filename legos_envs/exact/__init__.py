"""Games that can be solved: rules as pure functions, and their exact solutions."""
