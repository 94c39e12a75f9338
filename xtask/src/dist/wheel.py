"""Makes a wheel of a folder: writes its RECORD, and packs it so that the same files give the same bytes.

usage: wheel.py FOLDER WHEEL EPOCH LEVEL

Of Python alone, which every machine has that builds Tidegate; `build` and hatchling would have to be installed for it.
"""

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path

folder, wheel, epoch, level = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
record = next(name for name in files if name.endswith(".dist-info/METADATA")).replace("METADATA", "RECORD")
lines = []
for name in files:
    content = (folder / name).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    lines.append(f"{name},sha256={digest},{len(content)}\n")
(folder / record).write_text("".join(lines) + f"{record},,\n", encoding="utf-8")
with zipfile.ZipFile(wheel, "w") as archive:
    for name in [*files, record]:
        path = folder / name
        # Times in a zip begin in 1980. Whoever packs decides no more of the mode than whether it is a program.
        entry = zipfile.ZipInfo(name, max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0)))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        entry.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
        archive.writestr(entry, path.read_bytes(), compresslevel=level)
