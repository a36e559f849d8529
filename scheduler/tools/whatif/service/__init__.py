"""What-if requests: where pods would go, at whose cost, and what would have to change; also with fewer or more nodes."""
