"""What moves would free (docs/defragmentation.md): a user's question, and the frontier that answers it."""

from kai_cp_models.defrag.frontier import Frontier, Point, frontier
from kai_cp_models.defrag.problem import DefragQuestion
from kai_cp_models.defrag.questions import BadQuestion, question_like, question_of

__all__ = ["BadQuestion", "DefragQuestion", "Frontier", "Point", "frontier", "question_like", "question_of"]
