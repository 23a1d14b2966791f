"""The profile of one GPU: read strictly, fitted to the card, applied item by item, tried before it is kept, stored."""
