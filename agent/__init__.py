"""nodegate: proves a node healthy, launches its engine, lets traffic in on proof."""

__version__ = "0.1.0"
