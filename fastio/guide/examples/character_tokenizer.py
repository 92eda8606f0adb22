"""A tokenizer file with one id for each character of a text, for `fastio pack --tokenizer` and nanogpt.py.

    $ python character_tokenizer.py input.txt chars.json

It needs `pip install 'fastio[text]'`. A BPE that tokenizers trains is used the same way.
"""

import argparse
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

parser = argparse.ArgumentParser()
parser.add_argument("text", type=Path)
parser.add_argument("out")
options = parser.parse_args()

characters = sorted(set(options.text.read_text()))
tokenizer = Tokenizer(WordLevel({character: number for number, character in enumerate(characters)}))
tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
tokenizer.decoder = Fuse()
tokenizer.add_special_tokens(["<eos>"])
tokenizer.save(options.out)
print(f"{options.out}: {len(characters)} characters and <eos>")
