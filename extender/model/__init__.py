"""Pure data: Kubernetes objects as scheduling sees them, quantities, selectors and the columnar node table."""
