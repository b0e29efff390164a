"""Download the files of a corpus and check them: python download.py ADDRESS SHA256_FILE FOLDER.

SHA256_FILE is a list as ``sha256sum`` prints it. A file that is there already and whole is kept.
"""

import hashlib
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main() -> None:
    address, checksums, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for line in checksums.read_text(encoding="utf-8").splitlines():
        expected, name = line.split()
        path = folder / name
        if path.exists() and digest(path) == expected:
            continue
        try:
            urllib.request.urlretrieve(f"{address}/{name}", path)
        except (urllib.error.URLError, OSError) as error:
            sys.exit(
                f"{address}/{name} cannot be fetched ({error}); fetch the corpus by hand and set DATA to its folder"
            )
        if digest(path) != expected:
            sys.exit(f"{path} is not the file that this recipe was made with; delete it and try again, or set DATA")
        print(f"{path}: {expected}")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
