"""What each workspace stores and may store."""
