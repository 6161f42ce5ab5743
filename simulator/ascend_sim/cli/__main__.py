"""``python -m ascend_sim.cli``."""

from ascend_sim.cli import main

main()
