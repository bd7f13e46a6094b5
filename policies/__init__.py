"""Rules over what Git declares and over what a run would do. Importing anything here starts nothing."""
