#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/: for each family a small tokenizer.json, trained here in that
family's configuration, and the tokens that the library `tokenizers` makes of texts by it; and models
of SentencePiece, with the tokens that it makes.

    python3 tests/golden/tokenizer_fixtures.py [NAME...]     (needs tokenizers and sentencepiece)

texts.bin holds the texts, a byte 0x1e between them; NAME.ids the tokens as little-endian uint16, with
0xffff between those of two texts. Bytes that are not UTF-8 reach the library as U+FFFD.
"""
import array
import io
import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

SENTENCES = """\
The training step reads a batch of tokens, computes the loss and its gradients, and then updates weights.
Der Übungsschritt liest Wörter; größere Stöße von Zeichen brauchen mehr Speicher, als übrig ist.
L'étape d'entraînement lit des mots, où les élèves français préfèrent « naïveté » à cœur ouvert.
El pingüino español comió más de mil años; ¿quién lo diría? ¡Nadie! Três corações não são ilusões.
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép. Þetta er íslenska.
Diyarbakır'da yağmur yağıyor, İstanbul'da güneş var. Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ, được không?
Η γάτα διαβάζει ένα βιβλίο. Кошка читает книгу, а ещё ёжик спит. Їжак і ґанок. Жълта дюля беше щастлива.
חתול קורא ספר טוב. القطة تقرأ كتابًا مفيدًا في ٣٤٥ صفحة. گربه کتاب می‌خواند و ۱۲۳ برگ دارد.
बिल्ली किताब पढ़ती है और १२३ पन्ने हैं। বিড়াল বই পড়ে। பூனை புத்தகம் படிக்கிறது. แมวอ่านหนังสืออยู่ที่บ้าน
猫在读书，今天天气很好，我们去公园散步吧。ねこは本を読みます。カタカナとひらがな、漢字。고양이가 책을 읽습니다. 우리는 학교에 갑니다.
კატა კითხულობს წიგნს. Կատուն գիրք է կարդում։ ድመቷ መጽሐፍ ታነባለች። Муур ном уншиж байна. ᠮᠣᠩᠭᠣᠯ
def step(model, batch): # a comment
    loss = model(batch["x"]).mean()
    return {"loss": loss.item(), "n": 12345, "ok": True}
for (std::size_t i = 0; i < tokens.size(); ++i) { sum += tokens[i] * 3.14159e-05f; }
#include <vector>\n\tif (a != b && c->d == NULL) return -1;\r\n\t\tx <<= 2; // shift
I'm sure it's theirs; we'll say they've done it, she'd agree, you're right. IT'S, WE'LL, THEY'VE, I'M.
See https://example.org/a/b?c=d&e=%20f#g or write to someone@example.org (tel. +49 30 1234567).
"""

EDGES = [
    "", " ", "  ", "   a", "a ", "\n", "\n\n\n", " \n \n x", "\t\t\tx", "\r\n\r\n", "a\r\n b\n\n  c",
    "Hello", " Hello", "Hello world", "x" * 300, "ab" * 200, " " * 100 + "y", "0123456789012345",
    "ⅷ ½ ² ๑๒๓ १२ 𝟙𝟚 ㊿", "'s 'S 'ſ 'LL 'll 'Re 've'VE d'd \u212a's", "it\u2019s they\u2019ll",
    "a\u00a0b\u0085c\u2028d\u2029e\u3000f\u180eg\u200bh\ufeffi\u202fj\u205fk\u1680l\u000bm\u000cn\x1co",
    "e\u0301 \u00e9 A\u030a \u212b \u1112\u1161\u11ab 한 q\u0323\u0307 q\u0307\u0323 \u0344 \u2126 \ufb01 ﷺ",
    "\u0301a \u0301\u0302", "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 😀😃😄 🫠", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ∑∫√ ≤≥ → ← ⇒ ①②③ ™ © ®",
    "\x00\x01\x02\x7f nul", "tab\tand\x1bescape", "▁under ▁▁ line▁", "Ġ Ċ ĉ", "<0x0A><0xFF> <unk>",
    "<|endoftext|>", "a<|endoftext|>b", "<s>", "</s> x</s>", "<s> a </s>  b", "  <|user|>\n hi<|end|>\n\n x",
    "<start_of_turn>user\nhi<end_of_turn>\n", "<|im_start|>user<|im_end|>", "<think> yes </think>",
    "[INST] hi [/INST]", "<|end_of_text|><|begin_of_text|> ", "word words sword wordy a word. ẞword word\u0301",
    "\U0001f600" * 40, "漢字" * 60, "a\u0301" * 50, "  lead  mid   end    ", "    four\n        eight",
    "----====____....", "!!!???...", "a,b;c:d.e", "CamelCaseWordHTTPServer", "MİXED ıstanbul ǅ ǆ Ǆ ŉ ǰ ß ẞ",
]
ODD = [b"a\xffb\xfe\xfd", b"cut \xe6\xbc", b"\xf0\x9f\x98 \xf0\x9f", b"\xc0\xaf\xe0\x80\x80 \xed\xa0\x80\xed\xb0\x80",
       b"\xf4\x90\x80\x80\xf8\x88\x80\x80\x80", b"\x80\x80 caf\xe9 na\xefve", b"\xe2\x82\x28 \xe2\x28\xa1 \xf0\x28\x8c\xbc"]

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = GPT4.replace("{1,3}", "")
QWEN_MARKS = QWEN.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = GPT4O.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def by_expression(pattern):
    return pre_tokenizers.Sequence([split(Regex(pattern)),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2_words():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def special(*names, **how):
    return [AddedToken(name, special=True, normalized=False, **how) for name in names]


def plain(*names, **how):
    return [AddedToken(name, special=False, **how) for name in names]


def byte_level(corpus, entries, words, normalizer=None, added=(), **fields):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=entries, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_tokens(list(added))
    return with_model(tokenizer, **fields)


def sentence_piece(corpus, entries, normalizer=None, words=None, added=(), **fields):
    """As converted from SentencePiece: bytes have tokens, spaces are the sign U+2581."""
    base = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=entries, special_tokens=base, limit_alphabet=130, show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] in base[:3]]
    document["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    puts_space = isinstance(normalizer, normalizers.Sequence) or bool(words and "Metaspace" in str(words))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] +
                                          ([decoders.Strip(" ", 1, 0)] if puts_space else []))
    if normalizer:
        tokenizer.normalizer = normalizer
    if words:
        tokenizer.pre_tokenizer = words
    tokenizer.add_tokens(list(added))
    return with_model(tokenizer, **fields)


def with_model(tokenizer, start=None, joined_merges=False, without=(), **fields):
    if start:  # the token that stands before a text, where special ones are asked for
        template = processors.TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start} $B",
            special_tokens=[(start, tokenizer.token_to_id(start))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    document = json.loads(tokenizer.to_str())
    document["model"].update(fields)
    if joined_merges:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    for name in without:
        del document["model"][name]
    return document


def legacy_spaces():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def families(corpus, entries):
    spaces = [" " * n for n in range(2, 25)]
    return {
        "gpt2": lambda: byte_level(corpus, entries, gpt2_words(), added=special("<|endoftext|>"),
                                   joined_merges=True, continuing_subword_prefix="",
                                   end_of_word_suffix="",
                                   without=("type", "byte_fallback", "ignore_merges")),
        "gpt_neox": lambda: byte_level(corpus, entries, gpt2_words(), normalizers.NFC(), joined_merges=True,
                                       added=special("<|endoftext|>", "<|padding|>") + plain(*spaces)),
        "llama2": lambda: sentence_piece(corpus, entries, legacy_spaces(), start="<s>", joined_merges=True),
        "llama3": lambda: byte_level(corpus, entries, by_expression(GPT4), ignore_merges=True,
                                     start="<|begin_of_text|>", added=special("<|begin_of_text|>", "<|end_of_text|>")),
        "smollm2": lambda: byte_level(corpus, entries, pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), gpt2_words()]),
            added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
        "mistral": lambda: sentence_piece(
            corpus, entries, words=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            added=special("[INST]", "[/INST]")),
        "mistral_nemo": lambda: byte_level(corpus, entries, by_expression(TEKKEN), ignore_merges=True,
                                           added=special("<s>", "</s>", "[INST]", "[/INST]")),
        "qwen2": lambda: byte_level(corpus, entries, by_expression(QWEN), normalizers.NFC(), joined_merges=True,
                                    added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
        "qwen3": lambda: byte_level(corpus, entries, by_expression(QWEN_MARKS), normalizers.NFC(),
                                    added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>") +
                                    plain("<think>", "</think>", normalized=False)),
        "gemma": lambda: sentence_piece(
            corpus, entries, normalizers.Replace(" ", "▁"), split(" ", "merged_with_previous"),
            start="<s>", added=special("<start_of_turn>", "<end_of_turn>") +
            plain("\n\n", "\n\n\n", "▁▁", "▁▁▁", "\t\t", normalized=False)),
        "olmo2": lambda: byte_level(corpus, entries, by_expression(GPT4),
                                    added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
        "phi3": lambda: sentence_piece(
            corpus, entries, legacy_spaces(),
            added=special("<|endoftext|>") + special("<|user|>", "<|end|>", rstrip=True)),
        "phi4_mini": lambda: byte_level(corpus, entries, by_expression(GPT4O), ignore_merges=True,
                                        added=special("<|endoftext|>", "<|user|>", lstrip=True, rstrip=True)),
        # Belongs to no family: the other behaviors, flags of added tokens, and text without tokens.
        "unknown": lambda: sentence_piece(
            corpus, entries, normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
            added=plain("word", single_word=True, lstrip=True) + plain("é", "Hello"),
            byte_fallback=False, fuse_unk=False),
        "pieces": lambda: byte_level(corpus, entries, pre_tokenizers.Sequence([
            split(Regex(r"\p{L}+|\p{N}+|\s+|[^\s\p{L}\p{N}]"), "removed", True),
            split("e", "merged_with_next"), split(Regex(r"[aou]"), "contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]),
            added=plain("word", single_word=True, rstrip=True)),
    }


def texts():
    whole = SENTENCES.encode()
    return [whole, *(line for line in whole.splitlines(keepends=True)), *(e.encode() for e in EDGES), *ODD]


def ids_of(document, text):
    tokenizer = Tokenizer.from_str(json.dumps(document))
    return tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False).ids


def sentence_piece_model(corpus, entries, **how):
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, vocab_size=entries, hard_vocab_limit=False,
        character_coverage=0.98, minloglevel=2, num_threads=1, **how)
    return model.getvalue()


# Name: the model of a published folder's tokenizer.model.
MODELS = {
    "sp_llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                     remove_extra_whitespaces=False, split_digits=True),
    "sp_gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                     remove_extra_whitespaces=False, add_dummy_prefix=False, split_digits=True,
                     user_defined_symbols=["\n", "\n\n", "\n\n\n", "\t\t", "▁▁", "▁▁▁", "<start_of_turn>"]),
    "sp_unigram": dict(model_type="unigram", normalization_rule_name="identity"),
}


def write_ids(path, lists):
    numbers = array.array("H")
    for index, ids in enumerate(lists):
        numbers.extend(([0xffff] if index else []) + ids)
    if sys.byteorder != "little":
        numbers.byteswap()
    path.write_bytes(numbers.tobytes())


def main():
    folder = pathlib.Path(__file__).parent / "tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    only = sys.argv[1:]
    (folder / "texts.bin").write_bytes(b"\x1e".join(texts()))
    for name, make in families(SENTENCES.splitlines() * 3, 620).items():
        if only and name not in only:
            continue
        document = make()
        (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        write_ids(folder / f"{name}.ids", [ids_of(document, text) for text in texts()])
    for name, how in MODELS.items():
        if only and name not in only:
            continue
        import sentencepiece
        model = sentence_piece_model(SENTENCES.splitlines() * 3, 800, **how)
        (folder / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        write_ids(folder / f"{name}.ids", [processor.encode(t.decode("utf-8", "replace")) for t in texts()])


if __name__ == "__main__":
    main()
