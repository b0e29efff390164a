"""Recurrent decoders, in PyTorch alone: the step, the loop over target words, and the path that needs no loop.

They differ in when they attend and in where the context goes, one file per family:

    attend, then update   query s_{i-1}, context into the cell            :mod:`.attend_then_update`
    update, then attend   query s_i, context into a_i, fed to step i + 1  :mod:`.input_feeding`
    free running          context into the readout only: no loop          :mod:`.free_running`
    no attention          one context for all words                       :mod:`.fixed_context`

Every decoder is used in two verbs. :meth:`~.base.RecurrentDecoder.begin` makes the memory of the source and the state before
the first word, once per sentence. :meth:`~.base.RecurrentDecoder.forward` reads any number of words from any state on: all of a
reference in training, one word per call in beam search. A state is a value: passed in, returned, never kept on the module.
The loop over target words, and how it asks attention, is the same for all: :mod:`.loop`.
"""

from .attend_then_update import AttendThenUpdateDecoder
from .base import AttentiveDecoder, DecoderOutput, DecoderState, RecurrentDecoder, TargetWords, map_tensors
from .compiled import compiled_step
from .fixed_context import FixedContextDecoder
from .free_running import FreeRunningDecoder, KeyValueDecoder, MemoryNetworkDecoder
from .initial_state import LastStateMap, TanhInitialState, joined_initial_state, reverse_initial_state
from .input_feeding import InputFeedingDecoder
from .readout import AttentionalLayer, MaxoutReadout, maxout

__all__ = [
    "AttendThenUpdateDecoder",
    "AttentionalLayer",
    "AttentiveDecoder",
    "DecoderOutput",
    "DecoderState",
    "FixedContextDecoder",
    "FreeRunningDecoder",
    "InputFeedingDecoder",
    "KeyValueDecoder",
    "LastStateMap",
    "MaxoutReadout",
    "MemoryNetworkDecoder",
    "RecurrentDecoder",
    "TanhInitialState",
    "TargetWords",
    "compiled_step",
    "joined_initial_state",
    "map_tensors",
    "maxout",
    "reverse_initial_state",
]
