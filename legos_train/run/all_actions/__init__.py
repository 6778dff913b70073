"""Updates over all legal actions: where they are decided, what each is worth, and the table without sampling."""
