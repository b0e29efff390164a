"""Download the raw Multi30k captions (task 1) and check them: python download.py FOLDER.

From github.com/multi30k/dataset, for research and education. A file that is there already and whole is kept.
"""

import hashlib
import sys
import urllib.error
import urllib.request
from pathlib import Path

ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
SHA256 = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, expected in SHA256.items():
        path = folder / name
        if path.exists() and digest(path) == expected:
            continue
        try:
            urllib.request.urlretrieve(ADDRESS + name, path)
        except (urllib.error.URLError, OSError) as error:
            sys.exit(
                f"{ADDRESS + name} cannot be fetched ({error}); fetch the corpus by hand and set DATA to its folder"
            )
        if digest(path) != expected:
            sys.exit(f"{path} is not the file that this recipe was made with; delete it and try again, or set DATA")
        print(f"{path}: {expected}")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
