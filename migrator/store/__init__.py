"""What an application uses to reach its scheduler's data, on either backend."""
