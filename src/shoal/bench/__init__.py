"""`shoal bench`: measurements that a user can repeat."""
