"""What another configuration would have done with the pods of a recording."""
