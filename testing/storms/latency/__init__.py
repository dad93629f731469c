"""The judge of latency in virtual time: bounds, and a drill after each storm that measures against them."""
