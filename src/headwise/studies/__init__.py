"""The papers' experiments and the recipe models, each a short text over the rooms below."""

# kind of study in a recipe -> "module:object", the object being a `headwise.engine.Study`; imported when a recipe asks for it
STUDIES: dict[str, str] = {
    "training": "headwise.studies._training:study",
    "specialization": "headwise.studies._specialization:study",
    "stem-cells": "headwise.studies._stemcells_study:study",
    "head-finetuning": "headwise.studies._probing_finetuning:study",
    "probing": "headwise.studies._probing_study:study",
    "similarity": "headwise.studies._similarity_study:study",
    "transfer": "headwise.studies._transfer_study:study",
}
