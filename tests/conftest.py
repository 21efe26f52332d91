"""With this file here, pytest puts tests/ on the import path, so that tests say ``from reference... import``."""
