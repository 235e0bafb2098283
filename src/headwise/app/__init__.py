"""The live page for lesion studies by hand."""
