"""The papers' experiments and the recipe models, each a short text over the rooms below."""

# kind of study in a recipe -> "module:object", the object being a `headwise.runs.Study`; imported when a recipe asks for it
STUDIES: dict[str, str] = {
    "training": "headwise.studies.training:study",
    "specialization": "headwise.studies.specialization:study",
    "stem-cells": "headwise.studies.stemcells_study:study",
    "head-finetuning": "headwise.studies.probing_finetuning:study",
    "probing": "headwise.studies.probing_study:study",
    "similarity": "headwise.studies.similarity_study:study",
    "transfer": "headwise.studies.transfer_study:study",
}
