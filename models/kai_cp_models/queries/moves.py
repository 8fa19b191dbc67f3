"""What moving pods would free (docs/defragmentation.md): a question as users write it, and its frontier."""

from kai_cp_models.defrag.frontier import Frontier, Point, frontier
from kai_cp_models.defrag.problem import DefragQuestion
from kai_cp_models.defrag.questions import BadQuestion, question_of

__all__ = ["BadQuestion", "DefragQuestion", "Frontier", "Point", "frontier", "question_of"]
