"""The main job on real input: every flight of a data set through a broker that is killed half-way (`make run`)."""
