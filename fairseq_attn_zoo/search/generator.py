"""The loop of beam search over target words, in the place of fairseq's own."""

import math
from itertools import accumulate
from typing import Any

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from .beam import Beam, Path
from .candidates import Candidates, best_candidates, enough_blocks
from .reader import Reader


class BeamSearchGenerator(SequenceGenerator):
    """fairseq's ``SequenceGenerator`` for models of this package: the same hypotheses and scores in less time.

    What it does not know (sampling and other strategies than beam search, constraints, a language model, blocked n-grams,
    ``--match-source-len``, suppressed words) it leaves to fairseq's.
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
        net_input = sample["net_input"]
        sentences, source_length = net_input["src_tokens"].shape
        longest = min(int(self.max_len_a * source_length + self.max_len_b), self.max_len - 1)
        assert self.min_len <= longest, "min_len cannot be larger than max_len, please adjust these!"

        device = net_input["src_tokens"].device
        readers = [Reader(model, net_input, sentences * self.beam_size) for model in self.model.models]
        start = self.eos if bos_token is None else bos_token
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
        return self.hypotheses([beam.found for beam in beams], attention, device)

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
            ends = scores + log_probs[:, self.eos]
            best, beams = ends.view(sentences, beam).sort(descending=True)
            if (best[:, 1:] < best[:, :-1]).all() and best.isfinite().all():
                return Candidates(best, torch.full_like(beams, self.eos), beams)
        # Twice the beam, for half of it may end; never all, so that padding is not chosen.
        count = min(2 * self.beam_size, beam * vocabulary - 1)
        log_probs[:, self.pad] = -math.inf
        if self.unk_penalty:
            log_probs[:, self.unk] -= self.unk_penalty
        if forced is None and step < self.min_len:
            log_probs[:, self.eos] = -math.inf
        if last or forced is not None or not enough_blocks(vocabulary, beam, count):
            return self.choose_as_fairseq(log_probs, scores, sentences, forced, last)
        candidates, beyond_doubt = best_candidates(log_probs, scores, sentences, count)
        doubtful = beyond_doubt.logical_not().nonzero().squeeze(1)
        if doubtful.numel():
            of_sentence = log_probs.view(sentences, -1)[doubtful].view(-1, vocabulary)
            of_hypotheses = scores.view(sentences, -1)[doubtful].view(-1)
            exact = self.choose_as_fairseq(of_sentence, of_hypotheses, doubtful.numel())
            for part, exact_part in zip(candidates, exact, strict=True):
                part[doubtful] = exact_part
        return candidates

    def choose_as_fairseq(
        self, log_probs: Tensor, scores: Tensor, sentences: int, forced: Tensor | None = None, last: bool = False
    ) -> Candidates:
        """:meth:`choose` by a sort of all log-probabilities, whose order of equal scores is fairseq's."""
        vocabulary = log_probs.size(1)
        log_probs.masked_fill_(log_probs.isnan(), -math.inf)
        if last:
            log_probs[:, : self.eos] = -math.inf
            log_probs[:, self.eos + 1 :] = -math.inf
        if forced is not None:
            words = forced.repeat_interleave(log_probs.size(0) // sentences).unsqueeze(1)
            kept = log_probs.gather(1, words)
            log_probs.masked_fill_(words.ne(self.pad), -math.inf).scatter_(1, words, kept)
        total = (log_probs + scores.unsqueeze(1)).view(sentences, -1)
        best, chosen = total.topk(min(2 * self.beam_size, total.size(1) - 1))
        beams = chosen.div(vocabulary, rounding_mode="trunc")
        return Candidates(best, chosen - beams * vocabulary, beams)

    def hypotheses(
        self, found: list[list[Path]], attention: list[Tensor | None], device: torch.device
    ) -> list[list[dict[str, Tensor]]]:
        """What fairseq's generator returns.

        Args:
            found: the last words of each sentence's hypotheses
            attention: N x S of each step, None without; N is that step's
        """
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
