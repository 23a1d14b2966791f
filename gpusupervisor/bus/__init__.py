"""D-Bus adapters, one per interface, thin; authorization; the ObjectManager."""
