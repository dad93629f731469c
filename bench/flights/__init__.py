"""The main job on real input: every flight of a data set through a killed broker and through a shadow (`make run`)."""
