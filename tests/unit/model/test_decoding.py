"""Structs that several threads decode for the first time: msgspec alone would end the process."""

import subprocess
import sys

import pytest

STORY = """
import sys, threading
import httpx
from topmast import Client
from topmast.model.decoding import learn_structs
sys.setswitchinterval(1e-6)

def structs(number):
    text = "from __future__ import annotations\\nfrom msgspec import Struct\\n"
    for i in range(12):
        text += f"class C{i}(Struct):\\n a: int\\n"
        text += f" d: dict[str, C{(i + 1) % 12}] | None = None\\n e: C{(i + 5) % 12} | None = None\\n"
    name = f"structs{number}"
    sys.modules[name] = module = type(sys)(name)
    exec(text, module.__dict__)
    return module

def read_all(module, first, together):
    together.wait()
    for i in range(12):
        READ(DATA, getattr(module, f"C{(first + i) % 12}"))

DATA = b'{"a":1,"d":{"q":{"a":1,"e":{"a":2}}},"e":{"a":3,"d":{"z":{"a":1}}}}'
for number in range(30):
    module, together = structs(number), threading.Barrier(4)
    LEARN()
    threads = [threading.Thread(target=read_all, args=(module, 3 * j, together)) for j in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
ALONE = "import msgspec\ndef READ(data, kind): return msgspec.json.decode(data, type=kind)\n"


CLIENT = """
client = Client("http://127.0.0.1:9")
def READ(data, kind): client._transport.decoded(kind, httpx.Response(200, content=data))
"""


@pytest.mark.parametrize(
    "before",
    [f"{CLIENT}LEARN = lambda: None\n", f"{ALONE}LEARN = learn_structs\n"],
    ids=["a client", "a server that has looked"],
)
def test_threads_that_decode_at_once_end_nothing(before: str) -> None:
    """Thirty times. With neither (msgspec's own `decode`, nothing learned) the first few end the process."""
    story = STORY.replace("\ndef structs", f"\n{before}\ndef structs", 1)
    done = subprocess.run([sys.executable, "-c", story], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
