"""What is played next: the arena, its requests, its artifact store."""
