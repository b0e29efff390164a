"""The loop of beam search over target words, in the place of fairseq's own."""

import math
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from .beam import Beam, Path
from .candidates import Candidates, best_candidates, enough_blocks
from .reader import Reader


class BeamSearchGenerator(SequenceGenerator):
    """fairseq's ``SequenceGenerator`` for models of this package: the same hypotheses and scores in less time.

    What it does not know it leaves to fairseq's: sampling and other strategies than beam search, constraints, a language
    model, blocked n-grams, ``--match-source-len``, suppressed words, a prefix that ends the sentence, dropout while
    translating.
    """

    @torch.no_grad()
    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        if not self.knows_all_options(sample, prefix_tokens, constraints):
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        start = self.eos if bos_token is None else bos_token
        found, attention = self.find(sample["net_input"], prefix_tokens, start)
        return self.hypotheses(found, attention, sample["net_input"]["src_tokens"].device)

    @torch.inference_mode()
    def find(
        self, net_input: dict[str, Any], prefix_tokens: Tensor | None, start: int
    ) -> tuple[list[list[Path]], list[Tensor | None]]:
        """Search.

        Args:
            net_input: of fairseq's batch
            prefix_tokens: words that each sentence begins with, B x T, padded
            start: the word before the first

        Returns:
            the last words of each sentence's hypotheses, in the order in which they ended; the attention of each step, N x
            S, for the N hypotheses of that step
        """
        sentences, source_length = net_input["src_tokens"].shape
        longest = min(int(self.max_len_a * source_length + self.max_len_b), self.max_len - 1)
        assert self.min_len <= longest, "min_len cannot be larger than max_len, please adjust these!"

        device = net_input["src_tokens"].device
        readers = [Reader(model, net_input, sentences * self.beam_size) for model in self.model.models]
        beams = [Beam(self.beam_size, start, self.eos) for _ in range(sentences)]
        going = list(range(sentences))  # the sentences that are not done, by number
        attention = []
        for step in range(longest + 1):
            paths = [path for number in going for path in beams[number].paths]
            scores = torch.tensor([path.score for path in paths], dtype=torch.float32, device=device)
            log_probs, weights = self.read(readers, torch.tensor([path.word for path in paths], device=device))
            attention.append(weights)
            forced = None
            if prefix_tokens is not None and step < min(prefix_tokens.size(1), longest):
                forced = prefix_tokens[torch.tensor(going, device=device), step]
            candidates = self.choose(step, log_probs, scores, len(going), forced, step == longest)

            rows, left = [], []  # of this step's batch: the hypotheses and the sentences that go on
            beam = len(paths) // len(going)
            of_sentences = zip(*(part.tolist() for part in candidates), strict=True)
            for place, (best, words, owners) in enumerate(of_sentences):
                chosen = beams[going[place]].advance(best, words, owners, place * beam, step == longest)
                if chosen is not None:
                    left.append(place)
                    rows += [place * beam + one for one in chosen]
            if not left:
                break
            assert step < longest, f"{step} < {longest}"
            order = None if rows == list(range(len(paths))) else torch.tensor(rows, device=device)
            kept = None if len(left) == len(going) else torch.tensor(left, device=device)
            for reader in readers:
                reader.follow(order, kept)
            going = [going[place] for place in left]
        return [beam.found for beam in beams], attention

    def knows_all_options(self, sample: dict[str, Any], prefix_tokens: Tensor | None, constraints: Any) -> bool:
        """Whether nothing is asked for that only fairseq's own search does."""
        return (
            type(self.search) is BeamSearch
            and constraints is None
            and self.lm_model is None
            and self.repeat_ngram_blocker is None
            and self.token_indices_to_suppress is None
            and not self.match_source_len
            and getattr(sample["net_input"].get("src_tokens"), "ndim", 0) == 2
            and (prefix_tokens is None or not prefix_tokens.eq(self.eos).any())
            and not any(model.training for model in self.model.models)
        )

    def read(self, readers: list[Reader], words: Tensor) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the next words, N x V, and the attention, N x S or None: of an ensemble, the means."""
        read = [reader.read(words, self.temperature) for reader in readers]
        if len(read) == 1:
            return read[0]
        log_probs = torch.stack([one for one, _ in read]).logsumexp(0) - math.log(len(read))
        attending = [weights for _, weights in read if weights is not None]
        return log_probs, torch.stack(attending).sum(0) / len(read) if attending else None

    def choose(
        self, step: int, log_probs: Tensor, scores: Tensor, sentences: int, forced: Tensor | None, last: bool
    ) -> Candidates:
        """The best continuations of each sentence, as fairseq chooses them, ties included.

        Args:
            step: words before this one
            log_probs: N x V; overwritten
            scores: of the hypotheses so far, N
            sentences: B
            forced: the word that each sentence must have here, B, padding for none; None where nothing is forced
            last: whether only the end of the sentence may follow
        """
        rows, vocabulary = log_probs.shape
        beam = rows // sentences
        if last:
            ends = (scores + log_probs.select(1, self.eos)).view(sentences, beam).cpu().numpy()
            beams = np.argsort(-ends, axis=1)
            candidates = Candidates(np.take_along_axis(ends, beams, 1), np.full_like(beams, self.eos), beams)
            if np.isfinite(ends).all() and not self.has_ties(candidates).any():
                return candidates
        # Twice the beam, for half of it may end; never all, so that padding is not chosen.
        count = min(2 * self.beam_size, beam * vocabulary - 1)
        log_probs.select(1, self.pad).fill_(-math.inf)
        if self.unk_penalty:
            log_probs.select(1, self.unk).sub_(self.unk_penalty)
        if forced is None and step < self.min_len:
            log_probs.select(1, self.eos).fill_(-math.inf)
        if last or forced is not None or not enough_blocks(vocabulary, beam, count + 1):
            return self.choose_as_fairseq(log_probs, scores, sentences, forced, last)
        candidates = best_candidates(log_probs, scores, sentences, count + 1)
        doubtful = np.flatnonzero(self.has_ties(candidates))
        candidates = Candidates(*(part[:, :count] for part in candidates))
        if len(doubtful):
            exact = self.choose_as_fairseq(log_probs, scores, sentences, only=doubtful)
            for part, exact_part in zip(candidates, exact, strict=True):
                part[doubtful] = exact_part
        return candidates

    def has_ties(self, candidates: Candidates) -> np.ndarray:
        """Of which sentences the choice depends on the order of equal scores, or on a score that is none: B."""
        tied = ~(candidates.scores[:, 1:] < candidates.scores[:, :-1])
        # No more candidates than these are looked at: a beam of them, and those that end.
        looked_at = self.beam_size + (candidates.words == self.eos).sum(axis=1, keepdims=True)
        return (tied & (np.arange(tied.shape[1]) < looked_at)).any(axis=1)

    def choose_as_fairseq(
        self,
        log_probs: Tensor,
        scores: Tensor,
        sentences: int,
        forced: Tensor | None = None,
        last: bool = False,
        only: np.ndarray | None = None,
    ) -> Candidates:
        """:meth:`choose` by a sort of all log-probabilities, whose order of equal scores is fairseq's.

        Args:
            only: numbers of the sentences to choose for; None for all
        """
        count = min(2 * self.beam_size, log_probs.size(0) // sentences * log_probs.size(1) - 1)
        if last:
            # Words without a chance need not be sorted, as long as PyTorch sorts in the same way: it has two.
            log_probs = log_probs[:, : max(64 * count, self.eos + 1)].contiguous()
        lost = log_probs.select(1, self.unk).isnan()  # a hypothesis has log-probabilities of all words or of none
        if lost.any():
            log_probs[lost] = -math.inf
        if last:
            log_probs[:, : self.eos] = -math.inf
            log_probs[:, self.eos + 1 :] = -math.inf
        if forced is not None:
            words = forced.repeat_interleave(log_probs.size(0) // sentences).unsqueeze(1)
            kept = log_probs.gather(1, words)
            log_probs.masked_fill_(words.ne(self.pad), -math.inf).scatter_(1, words, kept)
        total = log_probs.add_(scores.unsqueeze(1)).view(sentences, -1)
        some = only is not None and 2 * len(only) <= sentences  # else it is faster to sort all than to copy most
        if some:
            total = total[torch.from_numpy(only).to(total.device)]
        best, places = total.topk(count)
        candidates = Candidates.of(best, places, log_probs.size(1))
        return candidates if only is None or some else Candidates(*(part[only] for part in candidates))

    def hypotheses(
        self, found: list[list[Path]], attention: list[Tensor | None], device: torch.device
    ) -> list[list[dict[str, Tensor]]]:
        """What :meth:`find` found as fairseq's generator returns it."""
        ends = [end for of_sentence in found for end in of_sentence]
        paths = [end.steps() for end in ends]
        lengths = [len(path) for path in paths]
        steps = [step for path in paths for step in path]
        tokens = torch.tensor([word.word for _, word in steps], dtype=torch.long, device=device)
        before, total = (
            torch.tensor([word.score for word in words], dtype=torch.float32, device=device)
            for words in zip(*steps, strict=True)
        )
        scores = torch.tensor([end.score for end in ends], dtype=torch.float32, device=device)
        if self.normalize_scores:
            scores /= torch.tensor([length**self.len_penalty for length in lengths], dtype=torch.float32, device=device)
        attended = [torch.empty(0)] * len(paths)
        read = [weights for weights in attention if weights is not None]
        if read:
            first_rows = [0, *accumulate(weights.size(0) for weights in read)]
            rows = [first_rows[step] + word.row for path in paths for step, (_, word) in enumerate(path)]
            of_words = torch.cat(read)[torch.tensor(rows, device=device)].float()
            attended = [weights.t() for weights in of_words.split(lengths)]
        made = [
            {
                "tokens": words,
                "score": score,
                "attention": weights,
                "alignment": torch.empty(0),
                "positional_scores": each,
            }
            for words, score, weights, each in zip(
                tokens.split(lengths), scores, attended, (total - before).split(lengths), strict=True
            )
        ]
        bounds = list(accumulate(map(len, found), initial=0))
        order = scores.tolist()
        return [
            [made[place] for place in sorted(range(begin, end), key=order.__getitem__, reverse=True)]
            for begin, end in zip(bounds, bounds[1:], strict=False)
        ]


class AligningBeamSearchGenerator(SequenceGeneratorWithAlignment, BeamSearchGenerator):
    """:class:`BeamSearchGenerator` for ``--print-alignment``: fairseq makes alignments of what it found."""
